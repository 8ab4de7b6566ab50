use super::*;
use proptest::prelude::*;

/// Every type, nullable and not: the index has all of them, and the primary key behind.
pub(crate) fn schema() -> Schema {
    let all = ["flag", "int", "uint", "float", "text", "bytes"];
    let null = ["flag?", "int?", "uint?", "float?", "text?", "bytes?"];
    let types = [Type::Bool, Type::I64, Type::U64, Type::F64, Type::Text, Type::Bytes];
    let mut builder = Schema::builder();
    for at in 0..6 {
        builder = builder.column(all[at], types[at]).nullable_column(null[at], types[at]);
    }
    // Beside one another, which are stepped over together.
    for (name, of) in [("more", Type::U64), ("most", Type::I64), ("rest", Type::Text)] {
        builder = builder.column(name, of);
    }
    builder
        .primary_key(&["text", "int"])
        .index("every", &[&null[..], &all[..]].concat())
        .unique_index("unique", &["bytes?", "int"])
        .unique_index("other", &["bytes", "float"])
        .build()
        .unwrap()
}

pub(crate) fn value_of(column: &Column) -> BoxedStrategy<OwnedValue> {
    // Few distinct bytes and short lengths: equal values, prefixes, zeros.
    let bytes = || prop::collection::vec(prop::sample::select(vec![0u8, 1, 2, 0xfe, 0xff]), 0..5);
    let text = prop::collection::vec(prop::sample::select(vec!['\0', '\u{1}', 'a', 'ÿ']), 0..5);
    let of_type = match column.column_type() {
        Type::Bool => any::<bool>().prop_map(OwnedValue::Bool).boxed(),
        Type::I64 => prop_oneof![any::<i64>(), -2..3i64].prop_map(OwnedValue::I64).boxed(),
        Type::U64 => prop_oneof![any::<u64>(), 0..3u64].prop_map(OwnedValue::U64).boxed(),
        Type::F64 => prop_oneof![any::<u64>().prop_map(f64::from_bits), -1.0..1.0, Just(-0.0)]
            .prop_map(OwnedValue::F64)
            .boxed(),
        Type::Text => text.prop_map(|v| OwnedValue::Text(v.into_iter().collect())).boxed(),
        Type::Bytes => bytes().prop_map(OwnedValue::Bytes).boxed(),
    };
    if column.nullable() {
        prop_oneof![1 => Just(OwnedValue::Null), 3 => of_type].boxed()
    } else {
        of_type
    }
}

pub(crate) fn rows() -> impl Strategy<Value = Vec<OwnedValue>> {
    schema().columns().iter().map(value_of).collect::<Vec<_>>()
}

pub(crate) fn borrow(row: &[OwnedValue]) -> Vec<Value<'_>> {
    row.iter().map(OwnedValue::as_value).collect()
}

fn pick<'v>(row: &'v [OwnedValue], parts: &[u16]) -> Vec<Value<'v>> {
    parts.iter().map(|&at| row[at as usize].as_value()).collect()
}

fn encode(schema: &Schema, of: KeyOf, values: &[Value<'_>]) -> Vec<u8> {
    let mut key = Vec::new();
    encode_key(schema, of, values, &mut key).unwrap();
    key
}

proptest! {
    #[test]
    fn one_column_is_ordered(
        (column, a, b) in (0usize..12).prop_flat_map(|at| {
            let value = || value_of(&schema().columns()[at]);
            (Just(at), value(), value())
        })
    ) {
        let encode = |value: &OwnedValue| {
            let mut part = Vec::new();
            put_part(&schema().columns()[column], value.as_value(), &mut part).unwrap();
            part
        };
        prop_assert_eq!(encode(&a).cmp(&encode(&b)), a.cmp(&b));
    }

    #[test]
    fn composite_keys_are_ordered(a in rows(), b in rows(), same in 0usize..13) {
        let schema = schema();
        let every = KeyOf::Index(0);
        let parts = schema.key_parts(every);
        let a = pick(&a, parts);
        let b = [&a[..same.min(12)], &pick(&b, parts)[same.min(12)..]].concat();
        let (key_a, key_b) = (encode(&schema, every, &a), encode(&schema, every, &b));
        prop_assert_eq!(key_a.cmp(&key_b), a.cmp(&b));
        let decoded = decode_key(&schema, every, &key_a).unwrap();
        prop_assert_eq!(borrow(&decoded), a);
    }

    #[test]
    fn ranges_are_those_of_the_values(
        row in rows(), low in rows(), high in rows(),
        lens in (0usize..4, 0usize..4), kinds in (0..3, 0..3),
    ) {
        let schema = schema();
        let every = KeyOf::Index(0);
        let parts = schema.key_parts(every);
        let row = pick(&row, parts);
        let (low, high) = (pick(&low, &parts[..lens.0]), pick(&high, &parts[..lens.1]));
        fn bound<'a, 'v>(kind: i32, v: &'a [Value<'v>]) -> Bound<&'a [Value<'v>]> {
            match kind {
                0 => Bound::Unbounded,
                1 => Bound::Included(v),
                _ => Bound::Excluded(v),
            }
        }
        let (from, to) = (bound(kinds.0, &low), bound(kinds.1, &high));
        let range = KeyRange::new(&schema, every, from, to).unwrap();
        let after = match from {
            Bound::Unbounded => true,
            Bound::Included(v) => &row[..v.len()] >= v,
            Bound::Excluded(v) => &row[..v.len()] > v,
        };
        let before = match to {
            Bound::Unbounded => true,
            Bound::Included(v) => &row[..v.len()] <= v,
            Bound::Excluded(v) => &row[..v.len()] < v,
        };
        let key = encode(&schema, every, &row);
        prop_assert_eq!(range.contains(&key), after && before);
        prop_assert!(!(range.is_empty() && range.contains(&key)));
    }

    #[test]
    fn any_bytes_are_a_key_or_an_error(bytes: Vec<u8>, cut: usize, row in rows()) {
        let schema = schema();
        for of in [KeyOf::Primary, KeyOf::Index(0), KeyOf::Index(1)] {
            let _ = decode_key(&schema, of, &bytes);
            let mut key = encode(&schema, of, &pick(&row, schema.key_parts(of)));
            key.truncate(cut % (key.len() + 1));
            let _ = decode_key(&schema, of, &key);
            key.extend_from_slice(&bytes);
            let _ = decode_key(&schema, of, &key);
        }
    }
}

#[test]
fn persisted_form() {
    let schema = schema();
    let part = |name: &str, value: Value<'_>| {
        let mut part = Vec::new();
        let column = &schema.columns()[schema.column_index(name).unwrap()];
        put_part(column, value, &mut part).unwrap();
        part
    };
    assert_eq!(part("flag", true.into()), [1]);
    assert_eq!(part("int", (-2).into()), [0x7e, 0xfe]);
    assert_eq!(part("int?", 1.into()), [1, 0x81, 1]);
    assert_eq!(part("int?", Value::Null), [0]);
    assert_eq!(part("uint", 258u32.into()), [241, 18]);
    assert_eq!(part("float", 1.0.into()), [0xbf, 0xf0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(part("float", (-1.0).into()), [0x40, 0x0f, 255, 255, 255, 255, 255, 255]);
    assert_eq!(part("text", "a\0b".into()), [b'a', 0, 0xff, b'b', 0, 1]);
    assert_eq!(part("bytes?", b"".into()), [1, 0, 1]);
}

#[test]
fn a_key_has_a_limit() {
    let schema = schema();
    let mut key = vec![9];
    let text = "x".repeat(KEY_BYTES_MAX - 2 - 2);
    let fits = [text.as_str().into(), 1.into()];
    encode_key(&schema, KeyOf::Primary, &fits, &mut key).unwrap();
    assert_eq!(key.len(), 1 + KEY_BYTES_MAX);
    for len in [KEY_BYTES_MAX - 3, 10 * KEY_BYTES_MAX] {
        let (text, mut key) = ("x".repeat(len), vec![9]);
        let values = [text.as_str().into(), 1.into()];
        let error = encode_key(&schema, KeyOf::Primary, &values, &mut key).unwrap_err();
        assert!(matches!(error, RowError::KeyTooLong { .. }), "{error}");
        assert_eq!(key, [9]);
    }
}

#[test]
fn wrong_values_name_the_column() {
    let schema = schema();
    let message = |values: &[Value<'_>]| {
        encode_key(&schema, KeyOf::Primary, values, &mut Vec::new()).unwrap_err().to_string()
    };
    assert_eq!(
        message(&["a".into(), "b".into()]),
        "the column `int` is of type i64; a value of type text was given"
    );
    assert_eq!(message(&[Value::Null]), "the column `text` must not be NULL");
    assert_eq!(
        message(&["a".into(), 1.into(), 2.into()]),
        "primary key has 2 columns; 3 values were given"
    );
}

#[test]
fn the_last_prefix_has_no_end() {
    let schema = Schema::builder().column("u", Type::U64).primary_key(&["u"]).build().unwrap();
    let max = [Value::U64(u64::MAX)];
    let range = KeyRange::prefix(&schema, KeyOf::Primary, &max).unwrap();
    assert_eq!((range.lower(), range.upper()), (&[0xff; 9][..], None));
    let behind = KeyRange::new(&schema, KeyOf::Primary, Bound::Excluded(&max), Bound::Unbounded);
    assert!(behind.unwrap().is_empty());
    assert!(!KeyRange::all().is_empty());
    assert!(KeyRange::all().contains(b""));
    assert!(!KeyRange::empty().contains(b""));
}
