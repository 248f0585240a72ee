"""The demo's report: one HTML file that needs nothing else.

page      the file: verdict, figures, picture, tables
tables    rows of what was found
picture   LEO, high watermark, ISR and epochs over time, as SVG
gap_lanes how far each log end is above the high watermark, a lane for each replica
plot      one panel of it: scales, axes, lines
style     colours for light and dark, for the page and for the picture alone
picture_file  the picture alone, for the docs
"""
