SELECT sum(lo_custkey) AS a, sum(lo_partkey) AS b, sum(lo_suppkey) AS c, sum(lo_ordtotalprice) AS d
FROM lineorder
