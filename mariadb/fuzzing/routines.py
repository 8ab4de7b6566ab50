"""Triggers and stored functions, which read and change other tables for the statements that call them."""

from . import columns
from .statements import condition

LOG = "CREATE TABLE log (what VARCHAR(20), n BIGINT, KEY (n))"


def trigger(rng, table, tables):
    """A definition. What it does doesn't depend on the order in which rows are changed."""
    when, event = rng.choice(("BEFORE", "AFTER")), rng.choice(("INSERT", "UPDATE", "DELETE"))
    here = "OLD" if event == "DELETE" else rng.choice(("NEW", "OLD")) if event == "UPDATE" else "NEW"
    body = rng.choice(BODIES)(rng, table, tables, when, here)
    if not body:
        return None
    name = f"{table.name}_{when[0]}{event[0]}"
    return f"CREATE OR REPLACE TRIGGER {name} {when} {event} ON {table.name} FOR EACH ROW {body}"


def note_row(rng, table, _tables, _when, here):
    column = rng.choice(table.columns)
    return f"INSERT INTO log VALUES ('{table.name}', LENGTH({here}.{column.name}))"


def set_column(rng, table, _tables, when, here):
    if when != "BEFORE" or here != "NEW":
        return None
    column = rng.choice(table.filled)
    return f"SET NEW.{column.name} = {columns.value(rng, column)}"


def change_other(rng, table, tables, _when, here):
    others = [t for t in tables if t is not table and t.has_id]
    if not others or not table.has_id:
        return None
    other = rng.choice(others)
    column = rng.choice(other.filled)
    return rng.choice((f"UPDATE {other.name} SET {column.name} = {columns.value(rng, column)} WHERE id = {here}.id",
                       f"UPDATE IGNORE {other.name} SET {column.name} = {columns.value(rng, column)} WHERE id = {here}.id",
                       f"DELETE FROM {other.name} WHERE id = {here}.id"))


def count_other(rng, table, tables, _when, _here):
    others = [t for t in tables if t is not table]
    if not others:
        return None
    other = rng.choice(others)
    other.is_counted = True
    return f"INSERT INTO log SELECT 'counted', COUNT(*) FROM {other.name} WHERE {condition(rng, other)}"


def refuse(rng, table, _tables, _when, here):
    column = rng.choice(table.columns)
    return (f"IF {here}.{column.name} = {columns.value(rng, column)} THEN "
            "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'refused'; END IF")


BODIES = (note_row, note_row, set_column, change_other, count_other, refuse)


def counter(table):
    """A function that counts rows up to a number."""
    return (f"CREATE FUNCTION {table.name}_up_to(x BIGINT) RETURNS BIGINT READS SQL DATA "
            f"RETURN (SELECT COUNT(*) FROM {table.name} WHERE id <= x)")
