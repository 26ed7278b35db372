//! Tables as text, as Markdown, and as CSV.

use std::fmt::Write;

use super::html::{Align, Table};

/// Formats aligned columns, two spaces apart.
#[must_use]
pub fn to_text(table: &Table) -> String {
    let width = |index: usize| {
        let cells = table.rows.iter().filter_map(|row| row.get(index));
        let heading = table.columns.get(index).map(|(heading, _)| heading);
        cells.chain(heading).map(|text| text.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..table.columns.len()).map(width).collect();
    let headings: Vec<String> = table.columns.iter().map(|(heading, _)| heading.clone()).collect();
    let mut out = String::new();
    for row in std::iter::once(&headings).chain(&table.rows) {
        let mut line = String::new();
        for ((cell, (_, align)), width) in row.iter().zip(&table.columns).zip(&widths) {
            let _ = match align {
                Align::Left => write!(line, "{cell:<width$}  "),
                Align::Right => write!(line, "{cell:>width$}  "),
            };
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// Formats a table in GitHub's Markdown.
#[must_use]
pub fn to_markdown(table: &Table) -> String {
    let mut out = String::new();
    let line = |out: &mut String, cells: &mut dyn Iterator<Item = String>| {
        out.push('|');
        for cell in cells {
            let _ = write!(out, " {cell} |");
        }
        out.push('\n');
    };
    let escape =
        |text: &str| text.replace('\\', "\\\\").replace('|', "\\|").replace(['\n', '\r'], " ");
    line(&mut out, &mut table.columns.iter().map(|(heading, _)| escape(heading)));
    let delimiter = |align: &Align| match align {
        Align::Left => "---",
        Align::Right => "---:",
    };
    line(&mut out, &mut table.columns.iter().map(|(_, align)| delimiter(align).to_owned()));
    for row in &table.rows {
        line(&mut out, &mut row.iter().map(|cell| escape(cell)));
    }
    out
}

/// Formats comma-separated values (RFC 4180), but with LF line endings.
#[must_use]
pub fn to_csv(table: &Table) -> String {
    let mut out = String::new();
    let headings: Vec<String> = table.columns.iter().map(|(heading, _)| heading.clone()).collect();
    for row in std::iter::once(&headings).chain(&table.rows) {
        let cells: Vec<String> = row.iter().map(|cell| quote_csv(cell)).collect();
        out.push_str(&cells.join(","));
        out.push('\n');
    }
    out
}

fn quote_csv(cell: &str) -> String {
    if cell.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        Table {
            columns: vec![("scheme".into(), Align::Left), ("ms".into(), Align::Right)],
            rows: vec![
                vec!["a|b, \"c\"".into(), "8,400".into()],
                vec!["größe".into(), "59".into()],
            ],
        }
    }

    #[test]
    fn columns_line_up() {
        assert_eq!(to_text(&table()), "scheme       ms\na|b, \"c\"  8,400\ngröße        59\n");
    }

    #[test]
    fn markdown_keeps_its_columns() {
        assert_eq!(
            to_markdown(&table()),
            "| scheme | ms |\n| --- | ---: |\n| a\\|b, \"c\" | 8,400 |\n| größe | 59 |\n"
        );
    }

    #[test]
    fn csv_is_quoted_where_it_must_be() {
        assert_eq!(to_csv(&table()), "scheme,ms\n\"a|b, \"\"c\"\"\",\"8,400\"\ngröße,59\n");
    }
}
