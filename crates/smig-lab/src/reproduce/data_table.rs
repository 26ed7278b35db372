//! Tables of numbers: for readers, as CSV and as JSON.

use serde_json::{Value, json};

use smig_chart::html::{Align, Table};

/// A table with numeric cells.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DataTable {
    /// The columns, from left to right.
    pub columns: Vec<DataColumn>,
    /// The rows, each with one cell per column.
    pub rows: Vec<Vec<DataCell>>,
}

/// A column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataColumn {
    /// The name in CSV and JSON.
    pub key: &'static str,
    /// The heading for readers, with the unit.
    pub heading: &'static str,
    /// Decimal places for readers; `None` for text.
    pub digits: Option<usize>,
}

/// The content of a cell.
#[derive(Debug, Clone, PartialEq)]
pub enum DataCell {
    /// Text.
    Text(String),
    /// A number in the column's unit.
    Number(f64),
    /// No value.
    Empty,
}

impl DataCell {
    pub(super) fn of(value: Option<f64>) -> Self {
        value.filter(|value| value.is_finite()).map_or(Self::Empty, Self::Number)
    }

    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }
}

/// A text column.
pub(super) const fn text_column(key: &'static str, heading: &'static str) -> DataColumn {
    DataColumn { key, heading, digits: None }
}

/// A numeric column.
pub(super) const fn number_column(
    key: &'static str,
    heading: &'static str,
    digits: usize,
) -> DataColumn {
    DataColumn { key, heading, digits: Some(digits) }
}

impl DataTable {
    /// Renders the table for readers.
    #[must_use]
    pub fn to_display_table(&self) -> Table {
        let align = |column: &DataColumn| match column.digits {
            Some(_) => Align::Right,
            None => Align::Left,
        };
        let columns = self.columns.iter().map(|column| (column.heading.to_owned(), align(column)));
        self.build_table(columns.collect(), |column, value| {
            let digits = column.digits.unwrap_or(1);
            with_thousands_separators(&format!("{value:.digits$}"))
        })
    }

    /// Renders the table as CSV.
    #[must_use]
    pub fn to_csv(&self) -> String {
        let columns = self.columns.iter().map(|column| (column.key.to_owned(), Align::Left));
        smig_chart::table::to_csv(
            &self.build_table(columns.collect(), |_, value| format_rounded(value)),
        )
    }

    /// Returns the rows as JSON objects.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let row = |cells: &Vec<DataCell>| {
            let pairs = self.columns.iter().zip(cells).map(|(column, cell)| {
                let value = match cell {
                    DataCell::Text(text) => json!(text),
                    DataCell::Number(number) => json!(round_to_six_decimals(*number)),
                    DataCell::Empty => Value::Null,
                };
                (column.key.to_owned(), value)
            });
            Value::Object(pairs.collect())
        };
        Value::Array(self.rows.iter().map(row).collect())
    }

    fn build_table(
        &self,
        columns: Vec<(String, Align)>,
        format_number: impl Fn(&DataColumn, f64) -> String,
    ) -> Table {
        let row = |cells: &Vec<DataCell>| {
            let cell = |(column, cell): (&DataColumn, &DataCell)| match cell {
                DataCell::Text(text) => text.clone(),
                DataCell::Number(value) => format_number(column, *value),
                DataCell::Empty => String::new(),
            };
            self.columns.iter().zip(cells).map(cell).collect()
        };
        Table { columns, rows: self.rows.iter().map(row).collect() }
    }
}

/// Rounds to six decimal places: more than the measurement's precision.
fn round_to_six_decimals(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

fn format_rounded(value: f64) -> String {
    format!("{}", round_to_six_decimals(value))
}

/// Inserts thousands separators.
fn with_thousands_separators(text: &str) -> String {
    let integer_digits = text.find('.').unwrap_or(text.len());
    let mut out = String::new();
    for (index, c) in text.char_indices() {
        let digits_left = integer_digits.saturating_sub(index);
        if index < integer_digits
            && digits_left % 3 == 0
            && out.ends_with(|c: char| c.is_ascii_digit())
        {
            out.push(',');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_numbers() {
        let table = DataTable {
            columns: vec![text_column("scheme", "scheme"), number_column("mean_ms", "mean, ms", 0)],
            rows: vec![
                vec![DataCell::text("a, b"), DataCell::Number(12_345.6)],
                vec![DataCell::text("c"), DataCell::Empty],
            ],
        };
        assert_eq!(table.to_display_table().rows[0], ["a, b", "12,346"]);
        assert_eq!(table.to_csv(), "scheme,mean_ms\n\"a, b\",12345.6\nc,\n");
        assert_eq!(
            table.to_json(),
            json!([{"scheme": "a, b", "mean_ms": 12345.6}, {"scheme": "c", "mean_ms": null}])
        );
        assert_eq!(with_thousands_separators("-1234567.25"), "-1,234,567.25");
        assert_eq!(with_thousands_separators("-123"), "-123");
    }
}
