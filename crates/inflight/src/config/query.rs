//! What can be told of a user's query from its form alone: whether its number grows with the fleet,
//! which metrics it reads, over which spans.
//!
//! A form is no proof: whoever asks here words what follows as a question.

use std::time::Duration;

use promql_parser::parser::token::{
    T_ADD, T_AVG, T_COUNT, T_DIV, T_MAX, T_MIN, T_MUL, T_QUANTILE, T_SUB, T_SUM,
};
use promql_parser::parser::{AggregateExpr, BinaryExpr, Call, Expr, VectorSelector, parse};

/// The deepest brackets and the most operators: the parser recurses, and what walks its tree.
const DEPTH_MAX: usize = 100;
const OPERATORS_MAX: usize = 500;

/// Why a text is no query.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// It is not in the language.
    #[error("{0}")]
    Grammar(String),
    /// It is too large.
    #[error(
        "its brackets are more than {DEPTH_MAX} deep, or it has more than {OPERATORS_MAX} operators"
    )]
    Size,
    /// It gives a span of values, or a text.
    #[error("it gives neither a vector nor a number")]
    Kind,
}

/// A query that was read.
#[derive(Debug)]
pub(super) struct Query(Expr);

/// A metric that a query reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Read<'a> {
    /// Its name; empty where only labels select.
    pub(super) name: &'a str,
    /// The selector as the query writes it.
    pub(super) selector: String,
    /// The span, for rates and means.
    pub(super) span: Option<Duration>,
}

impl Query {
    /// Reads a query.
    ///
    /// *Errors*: it is none, or too large.
    pub(super) fn read(text: &str) -> Result<Self, QueryError> {
        read_query(text).map(Self)
    }

    /// Tells whether the number grows with the fleet at the same load per replica (a total), or
    /// does not (a ratio, a mean, a latency); `None` where the form does not say.
    pub(super) fn is_total(&self) -> Option<bool> {
        match degree(&self.0)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    /// Returns the metrics that it reads.
    pub(super) fn reads(&self) -> Vec<Read<'_>> {
        let mut found = Vec::new();
        collect(&self.0, &mut found);
        found
    }
}

/// Reads a query by its grammar, within a size that nothing overflows a stack by.
///
/// # Errors
/// It is none, or too large.
pub fn read_query(text: &str) -> Result<Expr, QueryError> {
    check_size(text)?;
    parse(text).map_err(QueryError::Grammar)
}

/// Refuses what no real query comes near. Texts and comments do not count.
fn check_size(query: &str) -> Result<(), QueryError> {
    let (mut depth, mut operators) = (0_usize, 0_usize);
    let mut rest = query;
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        let word = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        rest = match c {
            '"' | '\'' | '`' => text_end(after, c),
            '#' => after.split_once('\n').map_or("", |(_, next)| next),
            c if c.is_ascii_alphanumeric() || c == '_' => {
                let (word, next) = rest.split_at(word.unwrap_or(rest.len()));
                let is_operator = ["and", "or", "unless"].contains(&&*word.to_ascii_lowercase());
                operators += usize::from(is_operator);
                next
            }
            c => {
                match c {
                    '(' | '{' | '[' => depth += 1,
                    ')' | '}' | ']' => depth = depth.saturating_sub(1),
                    c => operators += usize::from("+-*/%^=<>!".contains(c)),
                }
                after
            }
        };
        if depth > DEPTH_MAX || operators > OPERATORS_MAX {
            return Err(QueryError::Size);
        }
    }
    Ok(())
}

/// Returns what follows a text that ends with this quote.
fn text_end(text: &str, quote: char) -> &str {
    let mut is_escaped = false;
    for (at, c) in text.char_indices() {
        if c == quote && !is_escaped {
            return &text[at + c.len_utf8()..];
        }
        is_escaped = c == '\\' && !is_escaped && quote != '`';
    }
    ""
}

/// Returns the selectors of spans that a query reads, as it writes them; none where it is none.
#[must_use]
pub fn query_spans(query: &str) -> Vec<String> {
    let query = Query::read(query);
    let reads = query.as_ref().map(Query::reads).unwrap_or_default();
    let spans = reads.into_iter().filter(|read| read.span.is_some());
    spans.map(|read| read.selector).collect()
}

/// Returns the power of the fleet's size that a number goes with: sums over replicas and counts of
/// them have 1, means over them and constants 0, and quotients and products what follows.
fn degree(expression: &Expr) -> Option<i32> {
    match expression {
        Expr::NumberLiteral(_) => Some(0),
        Expr::Paren(inner) => degree(&inner.expr),
        Expr::Unary(inner) => degree(&inner.expr),
        Expr::Subquery(inner) => degree(&inner.expr),
        Expr::VectorSelector(selector) => counts_replicas(selector).then_some(1),
        Expr::MatrixSelector(selector) => counts_replicas(&selector.vs).then_some(1),
        Expr::Aggregate(aggregate) => degree_of_aggregate(aggregate),
        Expr::Binary(binary) => degree_of_binary(binary),
        Expr::Call(call) => degree_of_call(call),
        Expr::StringLiteral(_) | Expr::Extension(_) => None,
    }
}

fn degree_of_aggregate(aggregate: &AggregateExpr) -> Option<i32> {
    let inner = degree(&aggregate.expr);
    match aggregate.op.id() {
        T_SUM | T_COUNT => Some(inner.map_or(1, |inner| inner.max(1))),
        // Who counts replicas tells the fleet's size, whoever says it.
        T_AVG | T_MAX | T_MIN | T_QUANTILE => Some(inner.unwrap_or(0)),
        _ => None,
    }
}

fn degree_of_binary(binary: &BinaryExpr) -> Option<i32> {
    let (left, right) = (degree(&binary.lhs), degree(&binary.rhs));
    let is_constant = |side: &Expr| matches!(side, Expr::NumberLiteral(_));
    match binary.op.id() {
        T_MUL => Some(left? + right?),
        T_DIV => Some(left? - right?),
        T_ADD | T_SUB if is_constant(&binary.rhs) => left,
        T_ADD | T_SUB if is_constant(&binary.lhs) => right,
        T_ADD | T_SUB => (left == right).then_some(left?),
        _ if binary.op.is_set_operator() => left.or(right),
        _ if binary.op.is_comparison_operator() => {
            let is_flag = binary.modifier.as_ref().is_some_and(|it| it.return_bool);
            if is_flag { Some(0) } else { left }
        }
        _ => None,
    }
}

fn degree_of_call(call: &Call) -> Option<i32> {
    match call.func.name {
        "histogram_quantile" | "histogram_avg" | "histogram_fraction" | "time" => Some(0),
        "vector" | "scalar" | "abs" | "ceil" | "floor" | "round" | "clamp" | "clamp_min"
        | "clamp_max" | "rate" | "irate" | "increase" | "delta" | "deriv" | "avg_over_time"
        | "max_over_time" | "min_over_time" | "last_over_time" | "label_replace" => {
            degree(call.args.args.first()?)
        }
        _ => None,
    }
}

/// Tells whether a metric's name says that it counts replicas.
fn counts_replicas(selector: &VectorSelector) -> bool {
    let name = selector.name.as_deref().unwrap_or_default();
    name == "up" || name.contains("replicas") || name.contains("membership_")
}

fn collect<'a>(expression: &'a Expr, found: &mut Vec<Read<'a>>) {
    let name = |selector: &'a VectorSelector| selector.name.as_deref().unwrap_or_default();
    match expression {
        Expr::VectorSelector(selector) => found.push(Read {
            name: name(selector),
            selector: selector.to_string(),
            span: None,
        }),
        Expr::MatrixSelector(selector) => found.push(Read {
            name: name(&selector.vs),
            selector: selector.to_string(),
            span: Some(selector.range),
        }),
        Expr::Paren(inner) => collect(&inner.expr, found),
        Expr::Unary(inner) => collect(&inner.expr, found),
        Expr::Subquery(inner) => collect(&inner.expr, found),
        Expr::Aggregate(inner) => collect(&inner.expr, found),
        Expr::Binary(both) => {
            collect(&both.lhs, found);
            collect(&both.rhs, found);
        }
        Expr::Call(call) => {
            for argument in &call.args.args {
                collect(argument, found);
            }
        }
        Expr::NumberLiteral(_) | Expr::StringLiteral(_) | Expr::Extension(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_total_is_told_from_what_does_not_grow_with_the_fleet() {
        let total = Some(true);
        let intensive = Some(false);
        for (query, is_total) in [
            ("sum(rate(requests_total[1m]))", total),
            ("sum(queue_length) * 2", total),
            ("count(up == 1)", total),
            ("ceil(sum(queue_length))", total),
            ("sum(in_flight) / 4 + 1", total),
            ("max(envoy_cluster_membership_healthy)", total),
            ("avg(queue_length)", intensive),
            ("sum(queue_length) / count(up)", intensive),
            (
                "sum(queue_length) / scalar(clamp_min(max(envoy_cluster_membership_healthy), 1))",
                intensive,
            ),
            (
                "sum(rate(wait_us[30s])) / (sum(rate(batches[30s])) * 1000 + 0.001)",
                intensive,
            ),
            (
                "histogram_quantile(0.9, sum by (le) (rate(latency_bucket[1m])))",
                intensive,
            ),
            (
                "avg(queue_length) * max(kube_deployment_status_replicas)",
                total,
            ),
            (
                "(sum(l) or 0 * max(membership_healthy)) * max(membership_healthy) / clamp_min(sum(s), 1)",
                total,
            ),
            ("queue_length", None),
            ("predict_linear(a[5m], 60)", None),
            ("sum(a) + avg(b)", None),
        ] {
            let read = Query::read(query).unwrap();
            assert_eq!(read.is_total(), is_total, "{query}");
        }
    }

    #[test]
    fn what_a_query_reads_is_found_wherever_it_stands() {
        let query = Query::read("sum(rate(a[30s])) / clamp_min(max(b), 1) or sum(c > 0)").unwrap();
        let names: Vec<_> = query
            .reads()
            .iter()
            .map(|read| (read.name, read.span))
            .collect();
        let span = Some(Duration::from_secs(30));
        assert_eq!(names, [("a", span), ("b", None), ("c", None)]);
        assert_eq!(
            query_spans("sum(rate(a{b=\"c\"}[30s])) / d"),
            ["a{b=\"c\"}[30s]"]
        );
    }

    #[test]
    fn what_is_no_query_is_an_error_however_deep() {
        Query::read("sum(").unwrap_err();
        Query::read(&"(".repeat(100_000)).unwrap_err();
        let chain = format!("a{}", "+a".repeat(8_000));
        assert_eq!(Query::read(&chain).unwrap_err(), QueryError::Size);
    }

    #[test]
    fn brackets_in_a_text_are_not_deep() {
        let query = format!("sum(up{{pod=~\"{}\"}})", r"\\(".repeat(150));
        assert_eq!(Query::read(&query).unwrap().is_total(), Some(true));
    }
}
