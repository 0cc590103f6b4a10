"""Tests of result comparison: `python -m unittest` in this folder."""

import datetime
import unittest
from decimal import Decimal

from results import compare, load_queries, order_keys, parse_csv, to_result

SQL = "SELECT k, v FROM t GROUP BY k ORDER BY k"


def differences(expected_rows, text, sql=SQL, columns=("k", "v")):
    expected = to_result(columns, expected_rows)
    return compare(expected, *parse_csv(text), sql)


class Comparing(unittest.TestCase):
    def test_equal_values_in_other_spellings_are_equal(self):
        rows = [(1, Decimal("2.50")), (2, None)]
        self.assertEqual(differences(rows, "k,v\n1,2.5\n2,\n"), [])

    def test_a_changed_digit_of_a_decimal_or_an_integer_is_found(self):
        self.assertTrue(differences([(1, Decimal("2.50"))], "k,v\n1,2.51\n"))
        self.assertTrue(differences([(1, 123456789012345678)], "k,v\n1,123456789012345679\n"))

    def test_floats_may_differ_in_the_last_digits_only(self):
        self.assertEqual(differences([(1, 25.522005853257337)], "k,v\n1,25.522006\n"), [])
        self.assertEqual(differences([(1, 25.522005853257337)], "k,v\n1,25.522005853257341\n"), [])
        self.assertTrue(differences([(1, 25.522005853257337)], "k,v\n1,25.52\n"))
        self.assertTrue(differences([(1, 25.522005853257337)], "k,v\n1,25.5230\n"))

    def test_order_matters_but_not_among_ties(self):
        rows = [(1, "a"), (1, "b"), (2, "c")]
        self.assertEqual(differences(rows, "k,v\n1,b\n1,a\n2,c\n"), [])
        self.assertTrue(differences(rows, "k,v\n2,c\n1,b\n1,a\n"))
        self.assertTrue(differences(rows, "k,v\n1,a\n1,a\n2,c\n"))

    def test_a_limit_may_cut_a_tie_anywhere(self):
        sql = SQL + " LIMIT 2"
        self.assertEqual(differences([(1, "a"), (2, "b")], "k,v\n1,a\n2,z\n", sql), [])
        self.assertTrue(differences([(1, "a"), (2, "b")], "k,v\n1,z\n2,b\n", sql))

    def test_missing_rows_and_columns_are_found(self):
        self.assertTrue(differences([(1, "a")], "k,v\n"))
        self.assertTrue(differences([(1, "a")], "k\n1\n"))

    def test_dates_and_quoted_texts_are_read(self):
        rows = [(datetime.date(1995, 3, 5), 'a, "b"')]
        self.assertEqual(differences(rows, 'k,v\n1995-03-05,"a, ""b"""\n'), [])


class Queries(unittest.TestCase):
    def test_order_columns_are_found_in_every_query_that_has_some(self):
        sql = load_queries("tpch")["Q03"]
        columns = ["l_orderkey", "revenue", "o_orderdate", "o_shippriority"]
        self.assertEqual(order_keys(sql, columns), ([1, 2], True))
        sql = load_queries("ssb")["Q3.1"]
        self.assertEqual(order_keys(sql, ["c_nation", "s_nation", "d_year", "revenue"]), ([2, 3], False))
        self.assertEqual(order_keys("SELECT (SELECT x ORDER BY y) FROM t", ["y"]), ([], False))

    def test_both_benchmarks_have_their_queries(self):
        self.assertEqual(len(load_queries("ssb")), 13)
        self.assertEqual(len(load_queries("tpch")), 22)


if __name__ == "__main__":
    unittest.main()
