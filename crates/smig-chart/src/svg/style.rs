//! Colours and fonts of charts, as CSS. A page contains it once; a standalone SVG file embeds it.

/// The style sheet. Its rules are scoped to the class `fig`; the colours are variables of the root
/// element.
pub const STYLE: &str = "\
:root{--paper:#fff;--ink:#1c2128;--soft:#59636e;--grid:#dde2e8;--vermilion:#c8500a;\
--purple:#cc5fa9;--blue:#0a63a8;--slate:#596473;--amber:#e39b00;--teal:#148f70;--brown:#64381c}\
@media(prefers-color-scheme:dark){:root{--paper:#14181d;--ink:#e6eaef;--soft:#9aa5b1;\
--grid:#2c343d;--vermilion:#ff7a33;--purple:#d68fd2;--blue:#2590ea;--slate:#667182;\
--amber:#ea9c00;--teal:#1fc495;--brown:#8f6a45}}\
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
.fig .screen{fill:none;stroke:var(--soft);stroke-width:.6}\
.fig .dots{stroke:var(--paper);stroke-width:.8}\
";

/// Adds fallbacks for programs without CSS variables, such as many SVG converters for papers:
/// before each declaration with a variable, the same declaration with the light value. Other
/// programs use the later of the two.
#[must_use]
pub fn with_colour_fallbacks(svg: &str) -> String {
    let light_declarations = STYLE.split("@media").next().unwrap_or_default();
    let value_of = |name: &str| {
        let (_, after) = light_declarations.split_once(&format!("{name}:"))?;
        after.split([';', '}']).next()
    };
    let mut out = String::with_capacity(svg.len() + 1024);
    let mut rest = svg;
    while let Some(at) = rest.find(":var(") {
        let (before, after) = rest.split_at(at);
        let declaration = before.rfind(['{', ';', '"']).map_or(0, |end| end + 1);
        let name = after[":var(".len()..].split(')').next().unwrap_or_default();
        out.push_str(before);
        if let Some(value) = value_of(name) {
            let property = &before[declaration..];
            out.push_str(&format!(":{value};{property}"));
        }
        out.push_str(":var(");
        rest = &after[":var(".len()..];
    }
    out.push_str(rest);
    out
}
