"""``python -m website``: write everything that the documentation says of the results anew."""

from pathlib import Path

from website.experiments import write_pages
from website.pictures import write_pictures
from website.regions import write_regions

if __name__ == "__main__":
    root = Path(__file__).parents[1]
    write_pages(root / "results", root / "docs" / "reproduction")
    write_regions(root)
    write_pictures(root)
