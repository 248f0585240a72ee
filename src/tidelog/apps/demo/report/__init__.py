"""The demo's report: one HTML file that needs nothing else.

page      the file: verdict, figures, picture, tables
tables    rows of what was found
picture   LEO, high watermark, ISR and epochs over time, as SVG
plot      one panel of it: scales, axes, lines
style     colours for light and dark, for the page and for the picture alone
"""
