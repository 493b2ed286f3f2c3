//! Judges queries by their grammar.

use std::convert::Infallible;

use promql_parser::label::Matchers;
use promql_parser::parser::token::{T_BOTTOMK, T_COUNT_VALUES, T_LIMIT_RATIO, T_LIMITK, T_TOPK};
use promql_parser::parser::value::ValueType;
use promql_parser::parser::{AggregateExpr, Call, Expr, VectorSelector, parse};
use promql_parser::util::{ExprVisitor, walk_expr};

use crate::config::{QueryError, read_query};

/// What a query gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rows {
    /// A number without a row.
    Scalar,
    /// One row without labels, or none.
    One,
    /// Rows with labels, as many as there are.
    Many,
}

/// Judges a query, and tells what it gives.
pub(super) fn judge(query: &str) -> Result<Rows, QueryError> {
    let expression = read_query(query)?;
    match expression.value_type() {
        ValueType::Scalar => Ok(Rows::Scalar),
        ValueType::Vector if is_one(&expression) => Ok(Rows::One),
        ValueType::Vector => Ok(Rows::Many),
        ValueType::Matrix | ValueType::String => Err(QueryError::Kind),
    }
}

/// Returns the counters, by their names, that a query takes as they are and not as a rate.
pub(super) fn bare_counters(query: &str) -> Vec<String> {
    struct Counters(Vec<String>);
    impl ExprVisitor for Counters {
        type Error = Infallible;

        fn pre_visit(&mut self, expression: &Expr) -> Result<bool, Infallible> {
            if let Expr::VectorSelector(VectorSelector {
                name: Some(name), ..
            }) = expression
                && name.ends_with("_total")
                && !self.0.contains(name)
            {
                self.0.push(name.clone());
            }
            Ok(true)
        }
    }
    let mut counters = Counters(Vec::new());
    if let Ok(expression) = read_query(query) {
        let Ok(_) = walk_expr(&mut counters, &expression);
    }
    counters.0
}

/// Lays a query out for people: without comments and needless brackets, on lines where it is long.
///
/// *Errors*: it is no query.
pub(super) fn laid_out(query: &str) -> Result<String, QueryError> {
    judge(query)?;
    let mut expression = read_query(query)?;
    unwrap_calls(&mut expression);
    let text = expression.prettify();
    // What is laid out must mean the same; else it stays as it is.
    let is_same = parse(&text).is_ok_and(|read| read == expression);
    Ok(if is_same { text } else { query.to_owned() })
}

/// Takes brackets off what holds together without them, and sorts labels as they are printed.
fn unwrap_calls(expression: &mut Expr) {
    let holds_together = |inner: &Expr| {
        matches!(
            inner,
            Expr::Aggregate(_) | Expr::Call(_) | Expr::Paren(_) | Expr::VectorSelector(_)
        )
    };
    while let Expr::Paren(inner) = expression
        && holds_together(&inner.expr)
    {
        let inner = inner.expr.as_ref().clone();
        *expression = inner;
    }
    match expression {
        Expr::Aggregate(inner) => unwrap_calls(&mut inner.expr),
        Expr::Unary(inner) => unwrap_calls(&mut inner.expr),
        Expr::Paren(inner) => unwrap_calls(&mut inner.expr),
        Expr::Subquery(inner) => unwrap_calls(&mut inner.expr),
        Expr::Binary(both) => {
            unwrap_calls(&mut both.lhs);
            unwrap_calls(&mut both.rhs);
        }
        Expr::Call(call) => (call.args.args.iter_mut()).for_each(|argument| unwrap_calls(argument)),
        Expr::VectorSelector(series) => sort_labels(&mut series.matchers),
        Expr::MatrixSelector(series) => sort_labels(&mut series.vs.matchers),
        Expr::NumberLiteral(_) | Expr::StringLiteral(_) | Expr::Extension(_) => {}
    }
}

fn sort_labels(labels: &mut Matchers) {
    labels.matchers.sort_by_key(ToString::to_string);
}

/// Tells whether a vector can have one row without labels at most.
fn is_one(expression: &Expr) -> bool {
    let is_scalar = expression.value_type() == ValueType::Scalar;
    is_scalar
        || match expression {
            Expr::Aggregate(AggregateExpr { op, modifier, .. }) => {
                let keeps_rows = [T_TOPK, T_BOTTOMK, T_LIMITK, T_LIMIT_RATIO, T_COUNT_VALUES];
                modifier.is_none() && !keeps_rows.contains(&op.id())
            }
            Expr::Paren(inner) => is_one(&inner.expr),
            Expr::Unary(inner) => is_one(&inner.expr),
            Expr::Binary(both) => is_one(&both.lhs) && is_one(&both.rhs),
            Expr::Call(Call { func, args }) => {
                let adds_labels = ["absent", "label_replace", "label_join"];
                !adds_labels.contains(&func.name)
                    && !args.is_empty()
                    && args.args.iter().all(|argument| is_one(argument))
            }
            Expr::Subquery(_)
            | Expr::NumberLiteral(_)
            | Expr::StringLiteral(_)
            | Expr::VectorSelector(_)
            | Expr::MatrixSelector(_)
            | Expr::Extension(_) => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_query_gives_is_known_from_its_form() {
        for (query, rows) in [
            ("1 + 1", Rows::Scalar),
            ("scalar(up)", Rows::Scalar),
            ("sum(up)", Rows::One),
            ("(sum(rate(a[1m])) - sum(b)) / 1e6 or vector(0)", Rows::One),
            ("clamp_min(max(up), 1)", Rows::One),
            ("up", Rows::Many),
            ("rate(a[1m])", Rows::Many),
            ("sum by (job) (up)", Rows::Many),
            ("topk(1, up)", Rows::Many),
            ("sum(a) + up", Rows::Many),
            ("absent(sum(up{job=\"a\"}))", Rows::Many),
        ] {
            assert_eq!(judge(query), Ok(rows), "{query}");
        }
    }

    #[test]
    fn b19_a_counter_that_is_taken_as_it_is_is_told() {
        assert_eq!(
            bare_counters("sum(a_total) / b_total + a_total"),
            ["a_total", "b_total"]
        );
        assert_eq!(bare_counters("sum(rate(a_total[5m])) + b"), [""; 0]);
    }

    #[test]
    fn what_is_no_query_is_refused_and_breaks_nothing() {
        for query in ["", "sum(", "up{", "up[1m]", "\"text\"", "a b", "\"a\\"] {
            judge(query).unwrap_err();
        }
        let deep = format!("{}1{}", "(".repeat(8000), ")".repeat(8000));
        let chains = ["+1", " or a", "^1"].map(|link| format!("a{}", link.repeat(3000)));
        for query in [deep, "-".repeat(8000) + "1"].iter().chain(&chains) {
            assert_eq!(judge(query), Err(QueryError::Size));
        }
        // What is in texts and comments is no operator.
        let text = format!(
            "up{{a=~\"{}\\\"\"}} # {}",
            "(a|b+)".repeat(600),
            "+".repeat(600)
        );
        assert_eq!(judge(&text), Ok(Rows::Many));
        let link = " + 1".repeat(500);
        laid_out(&format!("1{link}")).unwrap();
    }
}
