"""Tables 3, 4 and 5 and Figure 7c, on ImageNet or a part of it."""
