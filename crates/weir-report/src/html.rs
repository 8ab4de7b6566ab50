//! Escaping.

/// `text` as the contents of an element or of a quoted attribute.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// JSON as the contents of a `script` element: nothing in it can end the element.
pub fn json_in_script(json: &str) -> String {
    json.replace('<', "\\u003c").replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_ends_an_element_or_an_attribute() {
        assert_eq!(escape("<b a=\"'&\">"), "&lt;b a=&quot;&#39;&amp;&quot;&gt;");
        assert_eq!(json_in_script(r#"["</script><!--"]"#), r#"["\u003c/script>\u003c!--"]"#);
    }
}
