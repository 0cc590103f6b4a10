SELECT sum(lo_orderdate) AS s0, sum(lo_revenue) AS s1, sum(lo_partkey) AS s2, sum(lo_suppkey) AS s3,
sum(lo_custkey) AS s4, sum(lo_supplycost) AS s5
FROM lineorder
