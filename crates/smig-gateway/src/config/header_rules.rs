//! Changes to header fields, from the configuration.

use http::header::{
    CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHORIZATION, TE,
    TRAILER, TRANSFER_ENCODING, UPGRADE,
};

use super::HeaderSpec;

/// Fields that frame or route messages, or are hop-by-hop: rules cannot change them.
const RESERVED_FIELDS: [HeaderName; 10] = [
    CONNECTION,
    CONTENT_LENGTH,
    HOST,
    HeaderName::from_static("keep-alive"),
    PROXY_AUTHORIZATION,
    HeaderName::from_static("proxy-connection"),
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Remove(HeaderName),
    Set(HeaderName, HeaderValue),
    Add(HeaderName, HeaderValue),
}

impl Step {
    const fn name(&self) -> &HeaderName {
        match self {
            Self::Remove(name) | Self::Set(name, _) | Self::Add(name, _) => name,
        }
    }
}

/// Changes to a header section, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderRules(Box<[Step]>);

impl HeaderRules {
    /// Compiles the rules of a configuration.
    ///
    /// # Errors
    /// The table and the key with the error, and the reason.
    pub fn new(spec: &HeaderSpec) -> Result<Self, (&'static str, String, String)> {
        let mut steps = Vec::new();
        for (index, name) in spec.remove.iter().enumerate() {
            let name = parse_name(name).map_err(|what| ("remove", index.to_string(), what))?;
            steps.push(Step::Remove(name));
        }
        for (name, value) in &spec.set {
            let fault = |what| ("set", name.clone(), what);
            steps.push(Step::Set(
                parse_name(name).map_err(fault)?,
                parse_value(value).map_err(fault)?,
            ));
        }
        for (name, value) in &spec.add {
            let fault = |what| ("add", name.clone(), what);
            steps.push(Step::Add(
                parse_name(name).map_err(fault)?,
                parse_value(value).map_err(fault)?,
            ));
        }
        Ok(Self(steps.into()))
    }

    /// Changes a header section.
    pub fn apply(&self, headers: &mut HeaderMap) {
        for step in &self.0 {
            match step {
                Step::Remove(name) => drop(headers.remove(name)),
                Step::Set(name, value) => drop(headers.insert(name, value.clone())),
                Step::Add(name, value) => drop(headers.append(name, value.clone())),
            }
        }
    }

    /// Returns whether a rule changes this field.
    pub(crate) fn has_rule_for(&self, field: &str) -> bool {
        self.0.iter().any(|step| step.name().as_str().eq_ignore_ascii_case(field))
    }

    /// Returns whether a field's name differs from a rule's only by `_` and `-`. Servers that map fields to variables
    /// (CGI, WSGI) do not distinguish these: the rule would miss the field, but the server would take it for the
    /// rule's.
    pub(crate) fn is_imitated_by(&self, field: &HeaderName) -> bool {
        let normalize = |byte: u8| if byte == b'_' { b'-' } else { byte };
        let imitates = |name: &HeaderName| {
            let (name, field) = (name.as_str().bytes(), field.as_str().bytes());
            name.len() == field.len() && name.map(normalize).eq(field.map(normalize))
        };
        self.0.iter().any(|step| step.name() != field && imitates(step.name()))
            && !self.0.iter().any(|step| step.name() == field)
    }
}

fn parse_name(name: &str) -> Result<HeaderName, String> {
    let field: HeaderName = name.parse().map_err(|_| format!("{name:?} is not a field name"))?;
    if RESERVED_FIELDS.contains(&field) {
        return Err("this field is reserved for the gateway".to_owned());
    }
    Ok(field)
}

fn parse_value(value: &str) -> Result<HeaderValue, String> {
    value.parse().map_err(|_| format!("{value:?} has characters that are invalid in a field"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_fields_cannot_be_set() {
        for name in ["Host", "Connection", "Proxy-Authorization", "Keep-Alive", "Proxy-Connection"]
        {
            let spec: HeaderSpec = toml::from_str(&format!("set = {{ {name} = 'x' }}")).unwrap();
            assert!(HeaderRules::new(&spec).is_err(), "{name}");
        }
    }

    #[test]
    fn fields_are_removed_set_and_added_in_this_order() {
        let spec: HeaderSpec = toml::from_str(
            "remove = ['Server', 'X-A']\nset = { X-A = '1', X-B = '2' }\nadd = { X-B = '3' }",
        )
        .unwrap();
        let rules = HeaderRules::new(&spec).unwrap();
        let mut headers = HeaderMap::new();
        headers.append("server", HeaderValue::from_static("x"));
        headers.append("x-b", HeaderValue::from_static("old"));
        headers.append("x-b", HeaderValue::from_static("older"));
        rules.apply(&mut headers);
        assert_eq!(headers.len(), 3);
        assert_eq!(headers["x-a"], "1");
        let both: Vec<_> = headers.get_all("x-b").iter().collect();
        assert_eq!(both, ["2", "3"]);
        assert!(rules.has_rule_for("x-a") && !rules.has_rule_for("x-c"));
    }

    #[test]
    fn underscore_variants_of_a_rule_are_detected() {
        let spec: HeaderSpec =
            toml::from_str("remove = ['X-User-Id', 'a_b']\nset = { a-b = '1' }").unwrap();
        let rules = HeaderRules::new(&spec).unwrap();
        for (name, expected) in [
            ("x_user_id", true),
            ("x-user_id", true),
            ("x-user-id", false),
            ("x_user-idx", false),
            ("a_b", false),
            ("a-b", false),
        ] {
            assert_eq!(rules.is_imitated_by(&HeaderName::from_static(name)), expected, "{name}");
        }
        assert!(!HeaderRules::default().is_imitated_by(&HeaderName::from_static("x_user_id")));
    }

    #[test]
    fn faults_name_the_table_and_the_key() {
        let fault_key = |text: &str| {
            let spec: HeaderSpec = toml::from_str(text).unwrap();
            let (table, name, _) = HeaderRules::new(&spec).unwrap_err();
            format!("{table}.{name}")
        };
        assert_eq!(fault_key("set = { Content-Length = '1' }"), "set.Content-Length");
        assert_eq!(fault_key("remove = ['a', 'host']"), "remove.1");
        assert_eq!(fault_key("add = { 'a b' = '1' }"), "add.a b");
        assert_eq!(fault_key("add = { a = \"\\n\" }"), "add.a");
    }
}
