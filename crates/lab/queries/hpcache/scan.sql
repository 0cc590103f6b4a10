SELECT sum(lo_orderkey) AS k, sum(lo_custkey) AS c, sum(lo_partkey) AS p, sum(lo_suppkey) AS s, sum(lo_orderdate) AS d,
       sum(lo_quantity) AS q, sum(lo_extendedprice) AS e, sum(lo_ordtotalprice) AS t, sum(lo_discount) AS i,
       sum(lo_revenue) AS r, sum(lo_supplycost) AS u, sum(lo_tax) AS x, sum(lo_commitdate) AS m
FROM lineorder
