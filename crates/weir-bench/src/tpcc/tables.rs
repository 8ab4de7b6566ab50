//! The nine tables of TPC-C (clause 1.3), defined once: the embedded engine's schemas and a
//! server's definitions are both made of this.
//!
//! Amounts are whole cents, tax and discount ten-thousandths, times seconds since 1970; on a server
//! they are `DECIMAL` and `DATETIME`. `history` has a number as its primary key, which the standard
//! leaves open.

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An integer of 32 bits.
    Number,
    /// The same, or NULL.
    NumberOrNull,
    /// An integer of 64 bits.
    Long,
    /// An amount, in cents.
    Money,
    /// Ten-thousandths, below 1.
    Rate,
    /// A text of so many characters at most.
    Text(u16),
    /// Seconds since 1970.
    Time,
    /// The same, or NULL.
    TimeOrNull,
}

impl Kind {
    /// Whether it may be NULL.
    pub fn is_nullable(self) -> bool {
        matches!(self, Kind::NumberOrNull | Kind::TimeOrNull)
    }
}

/// A column's name, and what it holds.
pub type Column = (&'static str, Kind);

/// A table's definition.
#[derive(Debug, Clone, Copy)]
pub struct TableDefinition {
    /// Its name.
    pub name: &'static str,
    /// Its columns.
    pub columns: &'static [Column],
    /// The primary key's columns.
    pub primary_key: &'static [&'static str],
    /// The secondary index that it has, if it has one: its name and its columns.
    pub index: Option<(&'static str, &'static [&'static str])>,
}

/// For each table a module with the place of each of its columns, and its definition.
macro_rules! tables {
    ($(
        $(#[$doc:meta])*
        $table:ident { $($column:ident: $kind:expr,)+ }
        key [$($key:ident),+] $(, index $index:ident [$($part:ident),+])?;
    )+) => {
        $(
            $(#[$doc])*
            #[allow(non_upper_case_globals, reason = "places are named as the columns are")]
            pub mod $table {
                #[allow(unused_imports, reason = "some tables have no column of some kinds")]
                use super::Kind::{self, *};

                #[allow(non_camel_case_types, reason = "places are named as the columns are")]
                enum Place { $($column,)+ }

                $(
                    #[doc = concat!("The place of `", stringify!($column), "`.")]
                    #[allow(dead_code, reason = "a place may be of no interest")]
                    pub const $column: usize = Place::$column as usize;
                )+

                const COLUMNS: &[(&str, Kind)] = &[$((stringify!($column), $kind),)+];

                /// The table's definition.
                pub const TABLE: super::TableDefinition = super::TableDefinition {
                    name: stringify!($table),
                    columns: COLUMNS,
                    primary_key: &[$(stringify!($key)),+],
                    index: super::optional(&[$((stringify!($index), &[$(stringify!($part)),+]))?]),
                };
            }
        )+

        /// All tables.
        pub const TABLES: [TableDefinition; 9] = [$($table::TABLE),+];
    };
}

type Index = (&'static str, &'static [&'static str]);

const fn optional(indexes: &'static [Index]) -> Option<Index> {
    match indexes {
        [index, ..] => Some(*index),
        [] => None,
    }
}

tables! {
    /// Warehouses.
    warehouse {
        w_id: Number, w_name: Text(10), w_street_1: Text(20), w_street_2: Text(20), w_city: Text(20),
        w_state: Text(2), w_zip: Text(9), w_tax: Rate, w_ytd: Money,
    } key [w_id];

    /// Districts, ten in a warehouse.
    district {
        d_w_id: Number, d_id: Number, d_name: Text(10), d_street_1: Text(20), d_street_2: Text(20),
        d_city: Text(20), d_state: Text(2), d_zip: Text(9), d_tax: Rate, d_ytd: Money, d_next_o_id: Number,
    } key [d_w_id, d_id];

    /// Customers, 3,000 in a district.
    customer {
        c_w_id: Number, c_d_id: Number, c_id: Number, c_first: Text(16), c_middle: Text(2), c_last: Text(16),
        c_street_1: Text(20), c_street_2: Text(20), c_city: Text(20), c_state: Text(2), c_zip: Text(9),
        c_phone: Text(16), c_since: Time, c_credit: Text(2), c_credit_lim: Money, c_discount: Rate,
        c_balance: Money, c_ytd_payment: Money, c_payment_cnt: Number, c_delivery_cnt: Number, c_data: Text(500),
    } key [c_w_id, c_d_id, c_id], index by_name [c_w_id, c_d_id, c_last, c_first];

    /// Payments.
    history {
        h_id: Long, h_c_id: Number, h_c_d_id: Number, h_c_w_id: Number, h_d_id: Number, h_w_id: Number, h_date: Time,
        h_amount: Money, h_data: Text(24),
    } key [h_id];

    /// Orders that haven't been delivered.
    new_orders {
        no_w_id: Number, no_d_id: Number, no_o_id: Number,
    } key [no_w_id, no_d_id, no_o_id];

    /// Orders.
    orders {
        o_w_id: Number, o_d_id: Number, o_id: Number, o_c_id: Number, o_entry_d: Time, o_carrier_id: NumberOrNull,
        o_ol_cnt: Number, o_all_local: Number,
    } key [o_w_id, o_d_id, o_id], index by_customer [o_w_id, o_d_id, o_c_id, o_id];

    /// What was ordered, five to fifteen lines an order.
    order_line {
        ol_w_id: Number, ol_d_id: Number, ol_o_id: Number, ol_number: Number, ol_i_id: Number, ol_supply_w_id: Number,
        ol_delivery_d: TimeOrNull, ol_quantity: Number, ol_amount: Money, ol_dist_info: Text(24),
    } key [ol_w_id, ol_d_id, ol_o_id, ol_number];

    /// Items, 100,000 in all.
    item {
        i_id: Number, i_im_id: Number, i_name: Text(24), i_price: Money, i_data: Text(50),
    } key [i_id];

    /// Of each item what a warehouse has.
    stock {
        s_w_id: Number, s_i_id: Number, s_quantity: Number, s_dist_01: Text(24), s_dist_02: Text(24),
        s_dist_03: Text(24), s_dist_04: Text(24), s_dist_05: Text(24), s_dist_06: Text(24), s_dist_07: Text(24),
        s_dist_08: Text(24), s_dist_09: Text(24), s_dist_10: Text(24), s_ytd: Number, s_order_cnt: Number,
        s_remote_cnt: Number, s_data: Text(50),
    } key [s_w_id, s_i_id];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_indexes_are_of_columns() {
        for table in TABLES {
            let has = |name: &&&str| table.columns.iter().any(|(column, _)| column == *name);
            let index = table.index.map_or(&[][..], |(_, columns)| columns);
            let named = table.primary_key.iter().chain(index);
            assert!(named.clone().all(|name| has(&name)), "{}", table.name);
            assert!(table.columns.len() >= table.primary_key.len());
        }
        assert_eq!(stock::TABLE.columns[stock::s_dist_10].0, "s_dist_10");
    }
}
