SELECT c_custkey, sum(lo_revenue - lo_supplycost) AS profit
FROM lineorder, customer, "date"
WHERE lo_custkey = c_custkey
  AND lo_orderdate = d_datekey
  AND c_region = 'AMERICA'
  AND d_year BETWEEN 1992 AND 1997
GROUP BY c_custkey
ORDER BY profit DESC, c_custkey
LIMIT 20
