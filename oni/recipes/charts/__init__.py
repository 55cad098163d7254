"""A chart is data (chart.py); curves.py builds charts from training runs, matplotlib.py and plotly.py draw them."""
