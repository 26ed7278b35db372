//! Colours and type of charts, as CSS. A page has this once; an SVG file that
//! stands alone carries it.

/// The style sheet. All of its rules are below the class `fig`, and the colours
/// are variables of the root.
pub const STYLE: &str = "\
:root{--paper:#fff;--ink:#1c2128;--soft:#59636e;--grid:#dde2e8;--vermilion:#c8500a;\
--purple:#a8508e;--blue:#0a66a8;--slate:#52657a;--amber:#e39b00;--teal:#00856a}\
@media(prefers-color-scheme:dark){:root{--paper:#14181d;--ink:#e6eaef;--soft:#9aa5b1;\
--grid:#2c343d;--vermilion:#ff8a4a;--purple:#dd8fc4;--blue:#5bb3f0;--slate:#6f8296;\
--amber:#f0b429;--teal:#3fc3a0}}\
.fig{display:block;font:12px/1.2 system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;\
font-variant-numeric:tabular-nums}\
.fig text{fill:var(--soft)}\
.fig .name{fill:var(--ink);font-size:13px;font-weight:600}\
.fig .key{fill:var(--ink)}\
.fig .grid{stroke:var(--grid);fill:none;shape-rendering:crispEdges}\
.fig .axis{stroke:var(--soft);fill:none;shape-rendering:crispEdges}\
.fig .rule{stroke:var(--ink);stroke-dasharray:2 3;fill:none}\
.fig .mark{stroke:var(--ink);stroke-dasharray:5 3;fill:none}\
.fig .note{fill:var(--ink);paint-order:stroke;stroke:var(--paper);stroke-width:4px;\
stroke-linejoin:round}\
.fig .blocks{stroke:none}\
.fig .whisker{fill:none;stroke-width:1.4}\
.fig .ticks{fill:none;stroke-width:1.2}\
.fig .line{fill:none;stroke-width:2.2;stroke-linejoin:round}\
.fig .dots{stroke:var(--paper);stroke-width:.8}\
";
