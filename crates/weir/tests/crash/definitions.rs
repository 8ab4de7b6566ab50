//! Tables and indexes made, renamed and dropped.

use crate::model::{Added, Catalog, Def, Index, TableId};
use crate::world::{Down, Step, Weather, World, schema};
use std::collections::BTreeSet;
use weir::{Error, Type};

impl World {
    pub fn definition(&mut self) -> Step {
        let count = self.model.catalog().len();
        let kind = if count == 0 { 0 } else { self.rng.u8(..12) };
        match kind {
            0 if count < 4 => self.create_table(),
            0 | 1 if count > 1 => self.drop_table(),
            2 => self.rename_table(),
            3 | 4 => self.drop_index(),
            8 => self.truncate_table(),
            9 | 10 => self.add_column(),
            11 => self.drop_column(),
            _ => self.create_index(),
        }
    }

    /// Notes how a change of a definition ended; `true` if it was done.
    fn defined<T>(
        &mut self,
        what: &str,
        table: Option<TableId>,
        result: Result<T, Error>,
        change: impl FnOnce(&mut Catalog, u64),
    ) -> Result<bool, Down> {
        self.note(|| format!("{what}: {:?}", result.as_ref().map(drop)));
        let in_use = table.is_some_and(|t| self.in_use(t));
        match result {
            Ok(_) => {
                assert!(!in_use, "{what}: the table is in use");
                self.counts.definitions += 1;
                self.model.define(change);
                self.model.all_durable();
                Ok(true)
            }
            Err(Error::TableInUse(_)) => {
                assert!(in_use || self.weather == Weather::Full, "{what}: nobody uses the table");
                Ok(false)
            }
            Err(error) => {
                let down = self.down(what, error);
                self.counts.in_doubt += 1;
                self.model.define(change);
                Err(down)
            }
        }
    }

    fn create_table(&mut self) -> Step {
        self.tables_made += 1;
        let (id, name) = (self.tables_made, format!("t{}", self.tables_made));
        let mut schema = schema();
        let mut indexes = Vec::new();
        for index in Index::ALL {
            if self.rng.u8(..3) == 0 {
                schema = schema
                    .with_index(index.name(), index.columns(), index.unique())
                    .expect("an index of the schema");
                indexes.push((index, 0));
            }
        }
        let result = self.db().create_table(&name, schema);
        let what = format!("create table {name} {indexes:?}");
        self.defined(&what, None, result, |catalog, since| {
            catalog.insert(name, Def { id, indexes, added: Vec::new(), since });
        })?;
        Ok(())
    }

    fn drop_table(&mut self) -> Step {
        let Some((name, def)) = self.pick_table() else { return Ok(()) };
        let result = self.db().drop_table(&self.tables(&name));
        self.defined(&format!("drop table {name}"), Some(def.id), result, |catalog, _| {
            catalog.remove(&name);
        })?;
        Ok(())
    }

    /// For the model it is another table of the same name.
    fn truncate_table(&mut self) -> Step {
        let Some((name, def)) = self.pick_table() else { return Ok(()) };
        self.tables_made += 1;
        let id = self.tables_made;
        let result = self.db().truncate_table(&self.tables(&name));
        self.defined(&format!("truncate table {name}"), Some(def.id), result, |catalog, since| {
            let def = catalog.get_mut(&name).expect("the table is there");
            def.id = id;
            def.since = since;
            def.indexes.iter_mut().for_each(|index| index.1 = 0);
        })?;
        Ok(())
    }

    fn rename_table(&mut self) -> Step {
        let Some((name, def)) = self.pick_table() else { return Ok(()) };
        let to = format!("{}x", &name[..name.len().min(20)]);
        let taken = self.model.catalog().contains_key(&to);
        let result = self.db().rename_table(&self.tables(&name), &to);
        if taken {
            assert!(matches!(result, Err(Error::TableExists(_))), "the name is taken");
            return Ok(());
        }
        let what = format!("rename table {name} to {to}");
        self.defined(&what, Some(def.id), result, |catalog, _| {
            let def = catalog.remove(&name).expect("the table is there");
            catalog.insert(to, def);
        })?;
        Ok(())
    }

    fn create_index(&mut self) -> Step {
        let Some((name, def)) = self.pick_table() else { return Ok(()) };
        let index = Index::ALL[self.rng.usize(..4)];
        let table = self.tables(&name);
        let result = self.db().create_index(&table, index.name(), index.columns(), index.unique());
        match &result {
            Err(Error::IndexExists { .. }) => {
                assert!(def.indexes.iter().any(|x| x.0 == index), "no such index");
                return Ok(());
            }
            Err(Error::Duplicate { .. }) => {
                // Found while it was built, before its users were waited for.
                assert!(index.unique(), "index {index:?} has no duplicates");
                let rows = self.model.rows(def.id, u64::MAX);
                let all: Vec<u64> = rows.iter().filter_map(|r| r.u).collect();
                let different: BTreeSet<&u64> = all.iter().collect();
                assert!(different.len() < all.len(), "there is no duplicate");
                return Ok(());
            }
            _ => {}
        }
        let what = format!("create index {} of {name}", index.name());
        self.defined(&what, Some(def.id), result, |catalog, commit| {
            let def = catalog.get_mut(&name).expect("the table is there");
            def.indexes.push((index, commit));
        })?;
        Ok(())
    }

    fn drop_index(&mut self) -> Step {
        let Some((name, def)) = self.pick_table() else { return Ok(()) };
        if def.indexes.is_empty() {
            return Ok(());
        }
        let (index, _) = def.indexes[self.rng.usize(..def.indexes.len())];
        let result = self.db().drop_index(&self.tables(&name), index.name());
        let what = format!("drop index {} of {name}", index.name());
        self.defined(&what, Some(def.id), result, |catalog, _| {
            let def = catalog.get_mut(&name).expect("the table is there");
            def.indexes.retain(|x| x.0 != index);
        })?;
        Ok(())
    }

    fn add_column(&mut self) -> Step {
        let Some((table, def)) = self.pick_table() else { return Ok(()) };
        let after = self.stamps;
        let name = format!("x{}", self.rng.u8(..8));
        let default = (self.rng.u8(..2) == 0).then_some(after);
        let result = self.db().add_column(&self.tables(&table), &name, Type::U64, default.into());
        if def.added.iter().any(|column| column.name == name) {
            assert!(matches!(result, Err(Error::Schema(_))), "the name is taken");
            return Ok(());
        }
        let what = format!("add column {name} to {table}, default {default:?}");
        self.defined(&what, Some(def.id), result, |catalog, _| {
            let def = catalog.get_mut(&table).expect("the table is there");
            def.added.push(Added { name, default, after });
        })?;
        Ok(())
    }

    fn drop_column(&mut self) -> Step {
        let Some((table, def)) = self.pick_table() else { return Ok(()) };
        if def.added.is_empty() {
            return Ok(());
        }
        let at = self.rng.usize(..def.added.len());
        let name = &def.added[at].name;
        let result = self.db().drop_column(&self.tables(&table), name);
        let what = format!("drop column {name} of {table}");
        self.defined(&what, Some(def.id), result, |catalog, _| {
            catalog.get_mut(&table).expect("the table is there").added.remove(at);
        })?;
        Ok(())
    }
}
