"""Trino's SQL, as Athena speaks it, checked and put into DuckDB's words.

What Athena would refuse is refused in Athena's words. What DuckDB would answer *otherwise* is rewritten to Athena's
meaning, or refused with what to write instead: a query that passes means the same on both.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import sqlglot
from sqlglot import TokenType, exp
from sqlglot.optimizer.scope import Scope, traverse_scope

CATALOG = "awsdatacatalog"

GlueTable = Mapping[str, Any]
"""A table as ``glue.get_tables`` returns it, with ``DatabaseName``."""


class QueryFailed(Exception):
    """A query that Athena would fail, too; the text is one line, for ``StateChangeReason``."""


class Catalogue:
    """Tables and views by database and name; names are case-insensitive, as Glue keeps them in lower case."""

    def __init__(self, tables: Iterable[GlueTable]) -> None:
        self._tables = {(t["DatabaseName"].lower(), t["Name"].lower()): t for t in tables}

    @property
    def databases(self) -> list[str]:
        return sorted({database for database, _ in self._tables})

    def names(self, database: str) -> list[str]:
        return sorted(name for owner, name in self._tables if owner == database.lower())

    def find(self, database: str, name: str) -> GlueTable | None:
        return self._tables.get((database.lower(), name.lower()))

    def get(self, database: str, name: str) -> GlueTable:
        """A table that is known to be there."""
        return self._tables[(database.lower(), name.lower())]


def columns_of(table: GlueTable) -> list[Mapping[str, str]]:
    """Columns in Athena's order: the table's own, then the partition keys."""
    return [*table["StorageDescriptor"]["Columns"], *table.get("PartitionKeys", [])]


# SHOW FUNCTIONS of Trino 435, and the special forms that it does not list. DuckDB knows many names more.
_FUNCTIONS = frozenset(
    """
    abs acos all_match any_match any_value approx_distinct approx_most_frequent approx_percentile approx_set arbitrary
    array_agg array_distinct array_except array_intersect array_join array_max array_min array_position array_remove
    array_sort array_union arrays_overlap asin at_timezone atan atan2 avg bar beta_cdf bit_count bitwise_and
    bitwise_and_agg bitwise_left_shift bitwise_not bitwise_or bitwise_or_agg bitwise_right_shift
    bitwise_right_shift_arithmetic bitwise_xor bool_and bool_or cardinality cbrt ceil ceiling checksum chr codepoint
    color combinations concat concat_ws contains contains_sequence corr cos cosh cosine_similarity count count_if
    covar_pop covar_samp crc32 cume_dist current_date current_timezone date date_add date_diff date_format date_parse
    date_trunc day day_of_month day_of_week day_of_year degrees dense_rank dow doy e element_at empty_approx_set every
    exp filter first_value flatten floor format_datetime format_number from_base from_base32 from_base64
    from_base64url from_big_endian_32 from_big_endian_64 from_hex from_ieee754_32 from_ieee754_64 from_iso8601_date
    from_iso8601_timestamp from_iso8601_timestamp_nanos from_unixtime from_unixtime_nanos from_utf8 geometric_mean
    greatest hamming_distance hash_counts histogram hmac_md5 hmac_sha1 hmac_sha256 hmac_sha512 hour
    human_readable_seconds infinity intersection_cardinality inverse_beta_cdf inverse_normal_cdf is_finite is_infinite
    is_json_scalar is_nan jaccard_index json_array_contains json_array_get json_array_length json_extract
    json_extract_scalar json_format json_parse json_size kurtosis lag last_day_of_month last_value lead least length
    levenshtein_distance listagg ln log log10 log2 lower lpad ltrim luhn_check make_set_digest map map_agg map_concat
    map_entries map_filter map_from_entries map_keys map_union map_values map_zip_with max max_by md5 merge
    merge_set_digest millisecond min min_by minute mod month multimap_agg multimap_from_entries murmur3 nan ngrams
    none_match normal_cdf normalize now nth_value ntile numeric_histogram parse_data_size parse_datetime
    parse_duration parse_presto_data_size percent_rank pi pow power qdigest_agg quantile_at_value quarter radians rand
    random rank reduce reduce_agg regexp_count regexp_extract regexp_extract_all regexp_like regexp_position
    regexp_replace regexp_split regr_intercept regr_slope render repeat replace reverse rgb round row_number rpad
    rtrim second sequence sha1 sha256 sha512 shuffle sign sin sinh skewness slice soundex split split_part
    split_to_map split_to_multimap spooky_hash_v2_32 spooky_hash_v2_64 sqrt starts_with stddev stddev_pop stddev_samp
    strpos substr substring sum tan tanh tdigest_agg timezone_hour timezone_minute to_base to_base32 to_base64
    to_base64url to_big_endian_32 to_big_endian_64 to_hex to_ieee754_32 to_ieee754_64 to_iso8601 to_milliseconds
    to_unixtime to_utf8 transform transform_keys transform_values translate trim trim_array truncate typeof upper
    url_decode url_encode url_extract_fragment url_extract_host url_extract_parameter url_extract_path
    url_extract_port url_extract_protocol url_extract_query uuid value_at_quantile values_at_quantiles var_pop
    var_samp variance week week_of_year width_bucket wilson_interval_lower wilson_interval_upper with_timezone
    word_stem xxhash64 year year_of_week yow zip zip_with
    array cast coalesce cube exists extract format group grouping if json_array json_exists json_object json_query
    json_value nullif overlay position rollup row table try try_cast unnest values
    """.split()
)

# What DuckDB would answer differently without saying so, and what to write instead.
_DIFFERENT: dict[type[exp.Expr], str] = {
    exp.ApproxQuantile: "approx_percentile: take percentiles from the histograms, or min(x) FILTER over cume_dist()",
    exp.JSONValue: "json_value: write json_extract_scalar",
    exp.Skewness: "skewness: write it out with avg",
    exp.Format: "format: write concat with casts",
}
_NOT_ATHENA: dict[type[exp.Expr], str] = {
    exp.Qualify: "QUALIFY",
    exp.Pivot: "PIVOT",
    exp.ILike: "ILIKE",
}
_BEGINNINGS = (TokenType.SELECT, TokenType.WITH, TokenType.VALUES, TokenType.L_PAREN, TokenType.TABLE)


class Query:
    """A statement that is a query, with tables and columns found and Athena's meaning kept."""

    def __init__(self, text: str, database: str, catalogue: Catalogue) -> None:
        self.tokens = _tokens(text)
        self.tree = _parse(text, self.tokens)
        self.tables: list[GlueTable] = []
        self._refuse_unknown_functions()
        self._refuse_what_differs()
        for scope in traverse_scope(self.tree):
            for source in scope.sources.values():
                if isinstance(source, exp.Table):
                    self.tables.append(self._find(source, database, catalogue))
            self._refuse_hidden_aliases(scope, catalogue)
        self._meant = _named(self.tree.transform(_rewrite))

    @property
    def duckdb(self) -> str:
        """The query in DuckDB's words; every identifier quoted, since DuckDB reserves more words."""
        return self._meant.sql(dialect="duckdb", identify=True)

    def _find(self, source: exp.Table, database: str, catalogue: Catalogue) -> GlueTable:
        """The table that is meant; ``source`` is made to name it in full."""
        if source.catalog.lower() not in ("", CATALOG):
            raise QueryFailed(f"CATALOG_NOT_FOUND: {self.at(source.name)}: Catalog '{source.catalog}' does not exist")
        owner = (source.db or database).lower()
        table = catalogue.find(owner, source.name)
        if table is None:
            raise no_table(owner, source.name, self.at(source.name), catalogue)
        source.set("catalog", None)
        source.set("db", exp.to_identifier(owner))
        return table

    def _refuse_unknown_functions(self) -> None:
        aliases = {alias.name.lower() for alias in self.tree.find_all(exp.TableAlias)}
        for token, following in pairwise(self.tokens):
            called = token.token_type is TokenType.VAR and following.token_type is TokenType.L_PAREN
            name = token.text.lower()
            if called and name not in _FUNCTIONS and name not in aliases:
                raise self.no_function(name)

    def _refuse_what_differs(self) -> None:
        for node in self.tree.walk():
            if type(node) in _NOT_ATHENA:
                raise QueryFailed(f"SYNTAX_ERROR: {_NOT_ATHENA[type(node)]} is not part of Athena's SQL.")
            advice = _DIFFERENT.get(type(node)) or _differs(node)
            if advice:
                raise QueryFailed(f"NOT_SUPPORTED: the local region would answer otherwise than Athena. {advice}.")

    def _refuse_hidden_aliases(self, scope: Scope, catalogue: Catalogue) -> None:
        """DuckDB sees a SELECT's own aliases everywhere; Athena sees them in ORDER BY alone."""
        select = scope.expression
        known = _names_of_sources(scope, catalogue)
        if not isinstance(select, exp.Select) or scope.is_subquery or known is None:
            return
        hidden = {item.alias.lower() for item in select.expressions if isinstance(item, exp.Alias)} - known
        for part in ("expressions", "where", "group", "having"):
            for column in _own_columns(select.args.get(part)):
                if not column.table and column.name.lower() in hidden:
                    raise self.no_column(column.name)

    def at(self, name: str) -> str:
        """``line l:c`` of the first place where the statement names this."""
        token = next((t for t in self.tokens if t.text.lower() == name.lower()), self.tokens[0])
        return _place(token)

    def no_column(self, name: str) -> QueryFailed:
        """Athena's sentence for a column that is not there, and the nearest that is."""
        place, name = self._reference(name)
        known = {column["Name"] for table in self.tables for column in columns_of(table)}
        return QueryFailed(
            f"COLUMN_NOT_FOUND: {place}: Column '{name}' cannot be resolved or requester is not authorized to access "
            f"requested resources{_nearest(name.rpartition('.')[2], known)}"
        )

    def _reference(self, name: str) -> tuple[str, str]:
        """Where the statement first names this, and how: with its table before it, or its field after it."""
        index = next((i for i, t in enumerate(self.tokens) if t.text.lower() == name.lower()), None)
        if index is None:
            return "line 1:1", name
        types = [token.token_type for token in self.tokens]
        first = index - 2 if types[max(index - 1, 0)] is TokenType.DOT else index
        last = index + 2 if types[index + 1 : index + 2] == [TokenType.DOT] else index
        return _place(self.tokens[first]), "".join(token.text for token in self.tokens[first : last + 1])

    def no_function(self, name: str) -> QueryFailed:
        """Athena's sentence for a function that it does not have, ours for one that only Athena has."""
        if name in _FUNCTIONS:
            return QueryFailed(f"NOT_SUPPORTED: {self.at(name)}: the local region does not have Athena's '{name}'")
        return QueryFailed(
            f"FUNCTION_NOT_FOUND: {self.at(name)}: Function '{name}' not registered{_nearest(name, _FUNCTIONS)}"
        )


def _tokens(text: str) -> list[sqlglot.Token]:
    try:
        return sqlglot.tokenize(text, read="athena")
    except sqlglot.errors.TokenError as error:
        raise QueryFailed(f"SYNTAX_ERROR: line 1:1: {one_line(str(error))}") from error


def _parse(text: str, tokens: list[sqlglot.Token]) -> exp.Query:
    if not tokens:
        raise QueryFailed("SYNTAX_ERROR: line 1:1: the statement is empty")
    if tokens[0].token_type not in _BEGINNINGS:
        raise QueryFailed(
            f"NOT_SUPPORTED: line 1:1: the local region runs SELECT, WITH, SHOW, DESCRIBE and EXPLAIN, not "
            f"'{tokens[0].text}'."
        )
    for token, following in pairwise(tokens):
        if token.token_type is TokenType.SEMICOLON:
            raise QueryFailed(f"SYNTAX_ERROR: {_place(token)}: Only one sql statement is allowed.")
        # sqlglot forgives both of these.
        loose_comma = token.token_type is TokenType.COMMA and following.token_type in (
            TokenType.FROM,
            TokenType.R_PAREN,
        )
        if loose_comma or following.token_type is TokenType.DCOLON:
            raise _mismatched(following)
    try:
        tree = sqlglot.parse_one(text, read="athena")
    except sqlglot.errors.ParseError as error:
        raise _mismatched(_token_at(tokens, error)) from error
    if not isinstance(tree, exp.Query):
        raise _mismatched(tokens[0])
    return tree


def _token_at(tokens: list[sqlglot.Token], error: sqlglot.errors.ParseError) -> sqlglot.Token:
    found = error.errors[0]
    return next((t for t in tokens if (t.line, t.col) == (found["line"], found["col"])), tokens[-1])


def _mismatched(token: sqlglot.Token) -> QueryFailed:
    return QueryFailed(f"SYNTAX_ERROR: {_place(token)}: mismatched input '{token.text}'")


def _place(token: sqlglot.Token) -> str:
    # sqlglot counts to the last character of a token, Athena to the first; a quoted name is longer than its text.
    return f"line {token.line}:{token.col - (token.end - token.start)}"


def no_table(database: str, name: str, place: str, catalogue: Catalogue) -> QueryFailed:
    if not catalogue.names(database):
        return QueryFailed(f"SCHEMA_NOT_FOUND: {place}: Schema '{database}' does not exist")
    return QueryFailed(
        f"TABLE_NOT_FOUND: {place}: Table '{CATALOG}.{database}.{name}' does not exist"
        f"{_nearest(name, catalogue.names(database))}"
    )


def _nearest(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name.lower(), sorted(known), n=1, cutoff=0.6)
    return f". Did you mean '{close[0]}'?" if close else ""


def one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def _differs(node: exp.Expr) -> str:
    """What to write instead of a construct whose answer depends on the engine; empty when it does not."""
    if isinstance(node, exp.Div):
        sides = (node.left.unnest(), node.right.unnest())
        if any(isinstance(s, exp.Literal) and s.is_number and re.fullmatch(r"\d*\.\d*", s.name) for s in sides):
            return "Athena divides decimals to a decimal: write 1e0 for 1.0"
    if isinstance(node, exp.Reduce) and isinstance(node.args.get("finish"), exp.Lambda):
        finish = node.args["finish"]
        if finish.this != finish.expressions[0]:
            return "reduce: apply the last function outside"
    if isinstance(node, exp.Fetch) and (limits := node.args.get("limit_options")) and limits.args.get("with_ties"):
        return "WITH TIES: compare rank()"
    if isinstance(node, exp.Anonymous) and node.name.lower() == "millisecond":
        return "millisecond: avoid it"
    return ""


def _named(tree: exp.Expr) -> exp.Expr:
    """The query with ``_col0``, ``_col1`` for the columns that it leaves without a name, as Athena calls them."""
    select = tree
    while isinstance(select, exp.SetOperation | exp.Subquery):
        select = select.this
    for place, column in enumerate(select.expressions if isinstance(select, exp.Select) else []):
        if not isinstance(column, exp.Alias | exp.Column | exp.Dot) and not column.is_star:
            column.replace(exp.alias_(column.copy(), f"_col{place}"))
    return tree


def _rewrite(node: exp.Expr) -> exp.Expr:
    """The same meaning in a construct that DuckDB reads as Athena does."""
    if isinstance(node, exp.DateDiff):  # Athena counts elapsed units, DuckDB's date_diff boundaries crossed
        unit = exp.Literal.string(node.text("unit").lower())
        return exp.Anonymous(this="date_sub", expressions=[unit, node.expression, node.this])
    if isinstance(node, exp.ArraySlice):  # Athena takes a length, DuckDB the last index
        start, length = node.args["start"], node.args["end"]
        last = exp.paren(start.copy()) + exp.paren(length.copy()) - 1
        return exp.Anonymous(this="array_slice", expressions=[node.this, start, last])
    if isinstance(node, exp.RegexpExtract):  # no match is NULL, DuckDB's own is ''
        group = node.args.get("group") or exp.Literal.number(0)
        found = exp.Anonymous(this="regexp_extract_all", expressions=[node.this, node.expression, group])
        return exp.Anonymous(this="list_extract", expressions=[found, exp.Literal.number(1)])
    if isinstance(node, exp.SplitPart):  # beyond the last part is NULL, DuckDB's own is ''
        parts = exp.Anonymous(this="str_split", expressions=[node.this, node.args["delimiter"]])
        return exp.Anonymous(this="list_extract", expressions=[parts, node.args["part_index"]])
    if isinstance(node, exp.RegexpReplace) and isinstance(node.args.get("replacement"), exp.Literal):
        text = re.sub(r"\$(\d)", r"\\\1", node.args["replacement"].name)
        node.set("replacement", exp.Literal.string(text))
    if isinstance(node, exp.Extract) and node.this.name.upper() in ("DOW", "DAY_OF_WEEK", "DAYOFWEEK"):
        node.set("this", exp.var("ISODOW"))  # Sunday is 7, not 0
    return node


def _names_of_sources(scope: Scope, catalogue: Catalogue) -> set[str] | None:
    """Column names that the scope's sources offer, lower case; None where that cannot be told."""
    names: set[str] = set()
    for source in scope.sources.values():
        if isinstance(source, exp.Table):
            names |= {column["Name"].lower() for column in columns_of(catalogue.get(source.db, source.name))}
        elif isinstance(source.expression, exp.Query) and not source.expression.is_star:
            names |= {name.lower() for name in source.expression.named_selects}
        else:
            return None
    return names


def _own_columns(part: Any) -> Iterator[exp.Column]:
    """Columns named in a clause, not counting those in its subqueries."""
    for node in part if isinstance(part, list) else [part]:
        if isinstance(node, exp.Expr):
            for inner in node.walk(prune=lambda n: isinstance(n, exp.Query)):
                if isinstance(inner, exp.Column):
                    yield inner
