"""What clients did and saw, and whether one order of their transactions explains it.

Rows are lists to which transactions append values that nobody else uses, as in "Elle: Inferring Isolation Anomalies from
Experimental Observations" (Kingsbury and Alvaro, 2020): in the end each list tells the order of the writers of its row,
and what was read of it, whom the reader came after and before.

Each commit, and each snapshot, is taken to happen at one moment between when it was asked for and when it was answered:
- *a commit*: rows are held from when they are written, or read for a lock, until then;
- *a snapshot*: of a transaction's plain reads, or under READ COMMITTED of a single statement.

So whatever the isolation levels that meet, there is an order of all these moments that explains all that was read and written, and it
contradicts no clock. Where there is none, the checks tell a cycle.
"""

import collections
import dataclasses
import graphlib
import re


class Anomaly(Exception):
    """No order explains the history."""


@dataclasses.dataclass(eq=False)
class Moment:
    """When a commit or a snapshot happened, as far as a client knows: between two readings of one clock."""

    what: str
    begin: int = 0
    end: int = 0
    # Statements of the transaction, and what they gave.
    script: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Seen:
    """What was read of a row at a moment: its list, or only how long it is. `own`: values of the reader's own in it."""

    moment: Moment
    row: tuple
    values: list | None
    length: int
    own: list


@dataclasses.dataclass
class Absent:
    """A row was not among those with so many values or more."""

    moment: Moment
    row: tuple
    least: int


@dataclasses.dataclass
class History:
    """What one client did."""

    # (row, value) of who committed it.
    committed: dict = dataclasses.field(default_factory=dict)
    seen: list = dataclasses.field(default_factory=list)


def values_of(text):
    """A list as the tables have it.

    >>> values_of(""), values_of("7,12,")
    ([], [7, 12])
    """
    if not re.fullmatch("([0-9]+,)*", text):
        raise Anomaly(f"no list: {text}")
    return [int(value) for value in text.split(",")[:-1]]


def merged(histories):
    """The history of several clients together.

    >>> one, other = History({("t", 1): Moment("a")}), History({("t", 2): Moment("b")})
    >>> len(merged([one, other]).committed)
    2
    """
    whole = History()
    for each in histories:
        whole.committed.update(each.committed)
        whole.seen.extend(each.seen)
    return whole


def check(history, final):
    """Raises `Anomaly` unless one order explains the history. `final`: each row's list in the end.

    >>> def moment(begin, end): return Moment(f"at {begin}", begin, end)
    >>> a, b, c = moment(0, 10), moment(5, 15), moment(20, 30)
    >>> def found_in(seen, final, committed={("x", 1): a, ("x", 2): b}):
    ...     try: check(History(committed, seen), final)
    ...     except Anomaly as anomaly: return str(anomaly).split(":")[0]
    >>> def found(committed, final, *seen):
    ...     return found_in([Seen(m, row, values, len(values), []) for m, row, values in seen], final, committed)

    Two writers in one order, and who sees one of them or both:

    >>> found({("x", 1): a, ("x", 2): b}, {"x": [1, 2]}, (moment(3, 12), "x", [1]), (c, "x", [1, 2]))

    Lost and invented values, those of transactions that were taken back, or are on:

    >>> found({("x", 1): a, ("x", 2): b}, {"x": [2]})
    'committed and lost'
    >>> found({("x", 1): a}, {"x": [1, 1]})
    'twice in a list'
    >>> found({("x", 1): a}, {"x": [1, 3]})
    'never committed'
    >>> found({("x", 1): a}, {"x": [1]}, (c, "x", [1, 3]))
    'no beginning of the list'
    >>> found({("x", 1): a, ("x", 2): a}, {"x": [1, 2]}, (moment(3, 4), "x", [1]))
    'no order'
    >>> found({}, {}, (c, "x", []))
    'row x is gone'
    >>> def found_own(values): return found_in([Seen(b, "x", values, len(values), [2])], {"x": [1, 2]})
    >>> found_own([1, 2])
    >>> found_own([2])
    'no beginning of the list'

    Writers in one order in one row, and in another in another; half of a commit:

    >>> found({("x", 1): a, ("x", 2): b, ("y", 1): a, ("y", 2): b}, {"x": [1, 2], "y": [2, 1]})
    'no order'
    >>> found({("x", 1): a, ("y", 1): a}, {"x": [1], "y": [1]}, (b, "x", [1]), (b, "y", []))
    'no order'

    Each of two writers read what the other one changed, before (write skew); a snapshot from long ago:

    >>> found({("x", 1): a, ("y", 2): b}, {"x": [1], "y": [2]}, (a, "y", []), (b, "x", []))
    'no order'
    >>> found({("x", 1): a}, {"x": [1]}, (c, "x", []))
    'no order'
    >>> found_in([Absent(c, "x", 2)], {"x": [1, 2]})
    'no order'
    >>> found_in([Absent(c, "x", 3)], {"x": [1, 2]})
    """
    writers = _writers(history, final)
    behind = collections.defaultdict(set)
    for row, values in final.items():
        for before, after in zip(values, values[1:]):
            _order(behind, writers[row, before], writers[row, after])
    for seen in history.seen:
        if seen.row not in final:
            raise Anomaly(f"row {seen.row} is gone: {seen.moment.what} has seen it")
        values = final[seen.row]
        if isinstance(seen, Absent):
            length = seen.least - 1
        else:
            length = _prefix(seen, values)
            if seen.own:
                # The row is the reader's, whatever its snapshot.
                continue
            if length:
                _order(behind, writers[seen.row, values[length - 1]], seen.moment)
        if length < len(values):
            _order(behind, seen.moment, writers[seen.row, values[length]])
    _keep_time(behind, {*writers.values(), *(seen.moment for seen in history.seen)})
    try:
        graphlib.TopologicalSorter(behind).prepare()
    except graphlib.CycleError as error:
        cycle = [each for each in error.args[1] if isinstance(each, Moment)]
        scripts = "".join(f"\n{each.what}:\n  " + "\n  ".join(each.script) for each in cycle[1:])
        raise Anomaly(f"no order: {' before '.join(each.what for each in cycle)}{scripts}") from error


def _writers(history, final):
    """The commit of each value in the lists."""
    writers = history.committed
    for row, values in final.items():
        if len(set(values)) < len(values):
            raise Anomaly(f"twice in a list: row {row} has {values}")
        for value in values:
            if (row, value) not in writers:
                raise Anomaly(f"never committed: {value} in row {row}")
    there = {(row, value) for row, values in final.items() for value in values}
    for lost in writers.keys() - there:
        raise Anomaly(f"committed and lost: {lost[1]} of row {lost[0]}, by {writers[lost].what}")
    return writers


def _prefix(seen, values):
    """How many of the row's values, but for the reader's own, were seen."""
    length = seen.length - len(seen.own)
    if seen.values is not None and seen.values != values[:length] + seen.own:
        raise Anomaly(f"no beginning of the list: {seen.moment.what} has seen {seen.values} of row {seen.row},"
                      f" own of it {seen.own}; in the end it has {values[:length + 1]} ...")
    if seen.own and seen.own[0] in values and values.index(seen.own[0]) != length:
        raise Anomaly(f"no beginning of the list: {seen.moment.what} has seen {seen.values or seen.length} of row {seen.row},"
                      f" own of it {seen.own}, in front of which there are {values.index(seen.own[0])}")
    if not 0 <= length <= len(values):
        raise Anomaly(f"no beginning of the list: {seen.moment.what} has seen {seen.length} values of row {seen.row},"
                      f" own of it {seen.own}; in the end it has {len(values)}")
    return length


def _order(behind, before, after):
    if before is not after:
        behind[after].add(before)


def _keep_time(behind, moments):
    """What ended before something else began comes before it: by way of a chain of the ends."""
    ends = sorted(moments, key=lambda moment: moment.end)
    for at, moment in enumerate(ends):
        behind[at].add(moment)
        if at:
            behind[at].add(at - 1)
    at = 0
    for moment in sorted(moments, key=lambda moment: moment.begin):
        while at < len(ends) and ends[at].end < moment.begin:
            at += 1
        if at:
            behind[moment].add(at - 1)
