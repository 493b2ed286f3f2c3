//! What a request's path says: whether it counts, which model it is for, whether it begins a
//! session.

use inflight_core::ModelIndex;

use super::config::{GatewayConfig, ModelRoute};

/// The routing part of a gateway's settings, ready for look-ups.
#[derive(Debug)]
pub(super) struct Routes {
    ignored: Vec<String>,
    first_calls: Vec<String>,
    /// Longest prefix first, without a slash at the end.
    models: Vec<ModelRoute>,
    /// Takes what matches none.
    first: ModelIndex,
}

/// What a path says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// Forwarded without being counted or held.
    Ignored,
    /// Counted, for a model.
    Counted {
        /// The model.
        model: ModelIndex,
        /// Whether it begins a session.
        first_call: bool,
    },
}

impl Routes {
    pub(super) fn new(config: &GatewayConfig) -> Self {
        let mut models: Vec<ModelRoute> = config
            .models
            .iter()
            .map(|route| ModelRoute {
                prefix: route.prefix.trim_end_matches('/').to_owned(),
                model: route.model,
            })
            .collect();
        models.sort_by_key(|route| std::cmp::Reverse(route.prefix.len()));
        Self {
            ignored: config.ignore_paths.clone(),
            first_calls: config.first_calls.clone(),
            models,
            first: (config.models.first()).map_or(ModelIndex::default(), |route| route.model),
        }
    }

    /// Looks a path up. Ignored paths are compared as a whole, so that nothing below or around
    /// them slips past the count.
    pub(super) fn of(&self, path: &str) -> Route {
        if self.ignored.iter().any(|ignored| ignored == path) {
            return Route::Ignored;
        }
        let matching = self
            .models
            .iter()
            .find(|route| is_below(path, &route.prefix));
        Route::Counted {
            model: matching.map_or(self.first, |route| route.model),
            first_call: self.first_calls.iter().any(|first| first == path),
        }
    }
}

fn is_below(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes() -> Routes {
        let mut config = GatewayConfig::new(([127, 0, 0, 1], 0).into());
        config.ignore_paths = vec!["/healthz".into()];
        config.first_calls = vec!["/begin".into()];
        config.models = vec![
            ModelRoute {
                prefix: "/first".into(),
                model: ModelIndex(0),
            },
            ModelRoute {
                prefix: "/v2".into(),
                model: ModelIndex(1),
            },
            ModelRoute {
                prefix: "/v2/models/a/".into(),
                model: ModelIndex(2),
            },
        ];
        Routes::new(&config)
    }

    #[test]
    fn what_matches_no_model_belongs_to_the_first_of_them_whatever_its_row() {
        let mut config = GatewayConfig::new(([127, 0, 0, 1], 0).into());
        config.models = vec![ModelRoute {
            prefix: "/a".into(),
            model: ModelIndex(3),
        }];
        assert_eq!(Routes::new(&config).of("/b"), counted(3));
    }

    fn counted(model: usize) -> Route {
        Route::Counted {
            model: ModelIndex(model),
            first_call: false,
        }
    }

    #[test]
    fn the_longest_prefix_of_whole_segments_wins() {
        let routes = routes();
        assert_eq!(routes.of("/v2/models/a/infer"), counted(2));
        assert_eq!(routes.of("/v2/models/a"), counted(2));
        assert_eq!(routes.of("/v2/models/ab"), counted(1));
        assert_eq!(routes.of("/v20"), counted(0));
    }

    #[test]
    fn ignored_paths_and_first_calls_are_compared_as_a_whole() {
        let routes = routes();
        assert_eq!(routes.of("/healthz"), Route::Ignored);
        assert_eq!(routes.of("/healthz/../v20"), counted(0));
        assert_eq!(
            routes.of("/begin"),
            Route::Counted {
                model: ModelIndex(0),
                first_call: true
            }
        );
        assert_eq!(routes.of("/begin/"), counted(0));
    }
}
