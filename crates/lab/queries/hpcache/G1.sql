SELECT sum(lo_orderdate) AS s0, sum(lo_revenue) AS s1
FROM lineorder
