SELECT sum(lo_orderkey) AS a, sum(lo_extendedprice) AS b, sum(lo_revenue) AS c, sum(lo_supplycost) AS d
FROM lineorder
