"""The demo's report: one HTML file without external resources.

page          the file: verdict, figures, picture, tables
tables        the tables of results
lanes         the replicas, moment by moment, drawn as in the web console
picture       log end offsets, high watermark, ISR and epochs over time, as SVG
plot          one panel of the picture: scales, axes, lines
style         colours for light and dark mode, for the page and for the picture file
"""
