//! The plan before and after.

use super::super::before_after::before_after;

#[test]
fn a_correlated_subquery_is_a_join_with_the_values_that_it_is_asked_for() {
    let query = "SELECT n, (SELECT max(x) FROM s WHERE s.k < t.k) FROM t";
    before_after("decorrelate", &[query]).is(
        "
        Projection: t.n, (<subquery>)
          Subquery:
            Projection: max(s.x)
              Aggregate: groupBy=[[]], aggr=[[max(s.x)]]
                Filter: s.k < outer_ref(t.k)
                  TableScan: s
          TableScan: t
        ",
        "
        Projection: t.n, __value_2.value AS max(s.x)
          Left Join: t.k = __value_2.__domain_0_key_0
            TableScan: t
            SubqueryAlias: __value_2
              Projection: __domain_0.__domain_0_key_0 AS __domain_0_key_0, max(s.x) AS value
                Projection: __domain_0.__domain_0_key_0, max(s.x)
                  Projection: __domain_0.__domain_0_key_0, __groups_1.value_0 AS max(s.x)
                    Left Join: __domain_0.__domain_0_key_0 = __groups_1.__domain_0_key_0
                      SubqueryAlias: __domain_0
                        Distinct:
                          Projection: t.k AS __domain_0_key_0
                            TableScan: t
                      SubqueryAlias: __groups_1
                        Projection: __domain_0.__domain_0_key_0 AS __domain_0_key_0, max(s.x) AS value_0, \
                            Boolean(true) AS found
                          Aggregate: groupBy=[[__domain_0.__domain_0_key_0]], aggr=[[max(s.x)]]
                            Filter: s.k < __domain_0.__domain_0_key_0
                              Cross Join:
                                SubqueryAlias: __domain_0
                                  Distinct:
                                    Projection: t.k AS __domain_0_key_0
                                      TableScan: t
                                TableScan: s
        ",
    );
}
