"""Colours and fonts for light and dark mode, for the page and for the picture file.

People with red-green colour blindness can distinguish the replicas' colours. Each line also has its
own width, so that overlapping lines are all visible.
"""

_LIGHT = """
  --ink:#17212b; --soft:#54616e; --paper:#ffffff; --card:#f5f7f9; --edge:#d5dce3;
  --grid:#e4e9ee; --band:#eef3f8; --good:#11734b; --bad:#b3261e;
  --r0:#0b6fb8; --r1:#a85f00; --r2:#0b7a65; --lake:#7b4bb8;
"""
_DARK = """
  --ink:#e6edf3; --soft:#9fb0c0; --paper:#10161c; --card:#18212a; --edge:#2e3b47;
  --grid:#222d37; --band:#17212b; --good:#4cc38a; --bad:#ff8078;
  --r0:#57b2f2; --r1:#f0a840; --r2:#3fcfae; --lake:#bd97f5;
"""
COLOURS = f":root{{color-scheme:light dark;{_LIGHT}}}\n" + (
    f"@media (prefers-color-scheme:dark){{:root{{{_DARK}}}}}\n"
)

PICTURE = """
.tl text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;
  font-size:12px;fill:var(--ink)}
.tl .tl-tick{fill:var(--soft);font-size:11.5px;font-variant-numeric:tabular-nums}
.tl .tl-name{font-weight:600}
.tl .tl-end{text-anchor:end} .tl .tl-mid{text-anchor:middle}
.tl .tl-grid{stroke:var(--grid);stroke-width:1} .tl .tl-faint{stroke-opacity:.7}
.tl .tl-frame{fill:none;stroke:var(--edge)}
.tl .tl-band{fill:var(--band)} .tl .tl-plain{fill:var(--paper)}
.tl polyline{fill:none;stroke-linejoin:round;stroke-linecap:round}
.tl .tl-r0{stroke:var(--r0);stroke-width:9;stroke-opacity:.5}
.tl .tl-r1{stroke:var(--r1);stroke-width:5.5;stroke-opacity:.85}
.tl .tl-r2{stroke:var(--r2);stroke-width:2.4}
.tl .tl-hw{stroke:var(--ink);stroke-width:1.3;stroke-dasharray:2 4}
.tl .tl-lake{stroke:var(--lake);stroke-width:1.8}
.tl .tl-f0{fill:var(--r0)} .tl .tl-f1{fill:var(--r1)} .tl .tl-f2{fill:var(--r2)}
.tl .tl-s0{stroke:var(--r0)} .tl .tl-s1{stroke:var(--r1)} .tl .tl-s2{stroke:var(--r2)}
.tl .tl-g{fill:none;stroke-width:1.4}
.tl .tl-in{fill-opacity:.34}
.tl .tl-gone{stroke-width:1.6;stroke-dasharray:1 5;stroke-opacity:1}
.tl .tl-down{fill:none;stroke:var(--bad);stroke-dasharray:3 3}
.tl .tl-on{fill:var(--paper);font-weight:600;font-size:11px}
.tl text.tl-halo{stroke-dasharray:none;paint-order:stroke;
  stroke:var(--paper);stroke-width:4px;stroke-linejoin:round}
.tl .tl-kill{stroke:var(--bad);stroke-width:1.6}
.tl text.tl-kill{fill:var(--bad);font-weight:600}
.tl .tl-start{stroke:var(--soft);stroke-width:1.2;stroke-dasharray:5 3}
.tl text.tl-start{fill:var(--soft)}
.tl .tl-whole{stroke:var(--good);stroke-width:1.4;stroke-dasharray:5 3}
.tl text.tl-whole{fill:var(--good);font-weight:600}
"""

PAGE = """
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);line-height:1.5;
  font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
main{max-width:1180px;margin:0 auto;padding:28px 24px 48px}
h1{font-size:1.75rem;line-height:1.2;margin:0 0 .4rem} h2{font-size:1.2rem;margin:2.4rem 0 .6rem}
p{margin:.4rem 0;max-width:75ch} .soft,figcaption,caption{color:var(--soft)}
.verdict{font-size:1.15rem;font-weight:600;max-width:none}
.good{color:var(--good)} .bad{color:var(--bad)}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;
  margin:1.4rem 0 0;padding:0;list-style:none}
.figures li{background:var(--card);border:1px solid var(--edge);border-radius:10px;
  padding:12px 14px}
.figures b{display:block;font-size:1.45rem;line-height:1.25;font-variant-numeric:tabular-nums}
.figures span{color:var(--soft);font-size:.88rem}
figure{margin:1rem 0 0} figure svg{display:block;width:100%;height:auto}
figcaption{font-size:.9rem;margin-top:.5rem;max-width:90ch}
.middle,.narrow{display:none}
@media (max-width:1080px){.wide{display:none}.middle{display:block}}
@media (max-width:620px){.middle{display:none}.narrow{display:block}
  main{padding:20px 16px 40px}h1{font-size:1.45rem}}
.scroll{overflow-x:auto} .scroll:focus-visible{outline:2px solid var(--r0)}
table{border-collapse:collapse;width:100%;font-size:.92rem;font-variant-numeric:tabular-nums}
caption{text-align:left;font-size:.9rem;padding:0 0 .5rem}
th,td{text-align:left;padding:6px 14px 6px 0;border-bottom:1px solid var(--edge);vertical-align:top}
th{font-weight:600} thead th{color:var(--soft)}
.n,.s{white-space:nowrap} .n{text-align:right} td.ok{white-space:nowrap;font-weight:600}
code{font:.92em ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
ol.steps{padding:0;list-style:none;font-size:.95rem}
ol.steps li{display:flex;gap:14px;padding:2px 0}
ol.steps span,footer p{overflow-wrap:anywhere;min-width:0}
ol.steps time{color:var(--soft);min-width:4.2em;text-align:right;font-variant-numeric:tabular-nums}
footer{margin-top:2.6rem;border-top:1px solid var(--edge);padding-top:1rem;
  color:var(--soft);font-size:.88rem}
"""
