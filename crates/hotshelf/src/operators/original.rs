//! What an operator that takes the place of DataFusion's leaves to it.

/// The statistics of an operator that is a field, for one with the same rows.
macro_rules! statistics_of {
    ($inner:ident) => {
        fn statistics_from_inputs(
            &self,
            inputs: &[std::sync::Arc<datafusion::common::Statistics>],
            args: &datafusion::physical_plan::statistics::StatisticsArgs,
        ) -> datafusion::error::Result<std::sync::Arc<datafusion::common::Statistics>> {
            self.$inner.statistics_from_inputs(inputs, args)
        }

        fn child_stats_requests(
            &self,
            partition: Option<usize>,
        ) -> Vec<datafusion::physical_plan::statistics::ChildStats> {
            self.$inner.child_stats_requests(partition)
        }
    };
}

/// The methods of `ExecutionPlan` that are those of the operator in whose place this one is. For a type with the fields
/// `original` and `metrics` and a constructor `replacing`, and if more is to be kept, what takes it from
/// another one.
macro_rules! as_original {
    () => {
        crate::operators::original::as_original!(|own: Self, _: &Self| own);
    };
    ($keeping:expr) => {
        fn properties(&self) -> &std::sync::Arc<datafusion::physical_plan::PlanProperties> {
            self.original.properties()
        }

        fn input_distribution_requirements(
            &self,
        ) -> datafusion::physical_plan::InputDistributionRequirements {
            self.original.input_distribution_requirements()
        }

        fn children(&self) -> Vec<&std::sync::Arc<dyn ExecutionPlan>> {
            self.original.children()
        }

        fn apply_expressions(
            &self,
            f: &mut dyn FnMut(
                &std::sync::Arc<dyn datafusion::physical_expr::PhysicalExpr>,
            ) -> datafusion::error::Result<
                datafusion::common::tree_node::TreeNodeRecursion,
            >,
        ) -> datafusion::error::Result<datafusion::common::tree_node::TreeNodeRecursion> {
            self.original.apply_expressions(f)
        }

        fn with_new_children(
            self: std::sync::Arc<Self>,
            children: Vec<std::sync::Arc<dyn ExecutionPlan>>,
        ) -> datafusion::error::Result<std::sync::Arc<dyn ExecutionPlan>> {
            let options = datafusion::physical_plan::ReplaceChildrenOptions::new(
                datafusion::physical_plan::ChildrenPropertiesMode::Recompute,
            );
            self.replace_children(children, options)
        }

        fn replace_children(
            self: std::sync::Arc<Self>,
            children: Vec<std::sync::Arc<dyn ExecutionPlan>>,
            options: datafusion::physical_plan::ReplaceChildrenOptions,
        ) -> datafusion::error::Result<std::sync::Arc<dyn ExecutionPlan>> {
            let original = self.original.clone().replace_children(children, options)?;
            Ok(match Self::replacing(&original)? {
                Some(own) => std::sync::Arc::new(($keeping)(own, &self)),
                None => original,
            })
        }

        crate::operators::statistics_of!(original);

        fn metrics(&self) -> Option<datafusion::physical_plan::metrics::MetricsSet> {
            Some(self.metrics.clone_inner())
        }
    };
}

/// Shows an operator as the one in whose place it is, with `Spilling` before the name.
macro_rules! shown_as_original {
    ($operator:ident) => {
        impl std::fmt::Debug for $operator {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($operator))
                    .field("original", &self.original)
                    .finish_non_exhaustive()
            }
        }

        impl datafusion::physical_plan::DisplayAs for $operator {
            fn fmt_as(
                &self,
                format: datafusion::physical_plan::DisplayFormatType,
                f: &mut std::fmt::Formatter,
            ) -> std::fmt::Result {
                if format != datafusion::physical_plan::DisplayFormatType::TreeRender {
                    write!(f, "Spilling")?;
                }
                self.original.fmt_as(format, f)
            }
        }
    };
}

pub(super) use {as_original, shown_as_original};

pub(crate) use statistics_of;
