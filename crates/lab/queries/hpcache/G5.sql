SELECT sum(lo_orderdate) AS s0, sum(lo_revenue) AS s1, sum(lo_partkey) AS s2, sum(lo_suppkey) AS s3,
sum(lo_custkey) AS s4, sum(lo_supplycost) AS s5, sum(lo_extendedprice) AS s6, sum(lo_discount) AS s7,
sum(lo_quantity) AS s8, sum(lo_commitdate) AS s9
FROM lineorder
