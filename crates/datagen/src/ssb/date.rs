//! The date table: the calendar from 1992-01-01 on.
//!
//! The specification counts 2 556 days, one less than seven years with two leap days, so the last is 1998-12-30. Weeks
//! of the year follow `dbgen` (day / 7 + 1: the first has six days), as do seasons and holidays; days of the week
//! follow the calendar, where `dbgen` is one off.

use std::ops::Range;
use std::sync::{Arc, LazyLock};

use arrow::array::{BooleanArray, Int32Array, RecordBatch, StringViewArray};

use super::SsbTable;
use super::schema::record_batch;

/// Days in the table.
pub(super) const DAY_COUNT: usize = 2_556;

const WEEKDAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];
/// 1992-01-01 was a Wednesday.
const FIRST_WEEKDAY: usize = 3;
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const HOLIDAYS: [(i32, i32); 10] = [
    (1, 1),
    (2, 20),
    (4, 20),
    (5, 20),
    (7, 20),
    (8, 20),
    (9, 20),
    (10, 20),
    (11, 20),
    (12, 24),
];

/// One day of the calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Day {
    year: i32,
    month: i32,
    day: i32,
    day_in_year: i32,
    weekday: usize,
}

impl Day {
    const FIRST: Day = Day {
        year: 1992,
        month: 1,
        day: 1,
        day_in_year: 1,
        weekday: FIRST_WEEKDAY,
    };

    fn next(self) -> Day {
        let weekday = (self.weekday + 1) % 7;
        let (day, day_in_year) = (self.day + 1, self.day_in_year + 1);
        if !self.is_last_in_month() {
            Day {
                day,
                day_in_year,
                weekday,
                ..self
            }
        } else if self.month < 12 {
            Day {
                month: self.month + 1,
                day: 1,
                day_in_year,
                weekday,
                ..self
            }
        } else {
            Day {
                year: self.year + 1,
                month: 1,
                day: 1,
                day_in_year: 1,
                weekday,
            }
        }
    }

    fn is_last_in_month(self) -> bool {
        let days = match self.month {
            2 if self.year % 4 == 0 => 29,
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        self.day == days
    }

    fn key(self) -> i32 {
        self.year * 10_000 + self.month * 100 + self.day
    }

    fn month_name(self) -> &'static str {
        MONTHS[self.month as usize - 1]
    }

    fn season(self) -> &'static str {
        match self.month {
            1..=3 => "Winter",
            4 => "Spring",
            5..=8 => "Summer",
            9..=10 => "Fall",
            _ => "Christmas",
        }
    }
}

static DAYS: LazyLock<Vec<Day>> = LazyLock::new(|| {
    std::iter::successors(Some(Day::FIRST), |day| Some(day.next()))
        .take(DAY_COUNT)
        .collect()
});

/// Keys of all days in order, as `yyyymmdd`.
pub(super) fn keys() -> &'static [i32] {
    static KEYS: LazyLock<Vec<i32>> = LazyLock::new(|| DAYS.iter().map(|day| day.key()).collect());
    &KEYS
}

/// Days `rows.start` to `rows.end` counted from 1992-01-01.
pub(super) fn batch(rows: Range<u64>) -> RecordBatch {
    let days = &DAYS[rows.start as usize..rows.end as usize];
    let ints = |of: fn(&Day) -> i32| Arc::new(Int32Array::from_iter_values(days.iter().map(of)));
    let flags = |of: fn(&Day) -> bool| {
        Arc::new(BooleanArray::from_iter(
            days.iter().map(|day| Some(of(day))),
        ))
    };
    let texts =
        |of: fn(&Day) -> String| Arc::new(StringViewArray::from_iter_values(days.iter().map(of)));
    record_batch(
        SsbTable::Date,
        vec![
            ints(|d| d.key()),
            texts(|d| format!("{} {}, {}", d.month_name(), d.day, d.year)),
            texts(|d| WEEKDAYS[d.weekday].to_owned()),
            texts(|d| d.month_name().to_owned()),
            ints(|d| d.year),
            ints(|d| d.year * 100 + d.month),
            texts(|d| format!("{}{}", &d.month_name()[..3], d.year)),
            ints(|d| d.weekday as i32 + 1),
            ints(|d| d.day),
            ints(|d| d.day_in_year),
            ints(|d| d.month),
            ints(|d| d.day_in_year / 7 + 1),
            texts(|d| d.season().to_owned()),
            flags(|d| d.weekday == 6),
            flags(|d| d.is_last_in_month()),
            flags(|d| HOLIDAYS.contains(&(d.month, d.day))),
            flags(|d| (1..=5).contains(&d.weekday)),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calendar_runs_from_1992_to_the_day_before_the_last_of_1998() {
        let keys = keys();
        assert_eq!(keys.len(), DAY_COUNT);
        assert_eq!(keys[0], 19_920_101);
        assert_eq!(keys[31 + 28], 19_920_229);
        assert_eq!(keys[366], 19_930_101);
        assert_eq!(keys[DAY_COUNT - 1], 19_981_230);
        assert!(keys.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn days_of_the_week_follow_the_calendar() {
        let weekday_of = |key| {
            let day = DAYS.iter().find(|day| day.key() == key).unwrap();
            WEEKDAYS[day.weekday]
        };
        assert_eq!(weekday_of(19_930_101), "Friday");
        assert_eq!(weekday_of(19_960_229), "Thursday");
        assert_eq!(weekday_of(19_981_225), "Friday");
    }

    #[test]
    fn the_calendar_agrees_with_tpch() {
        use tpchgen::dates::{MIN_GENERATE_DATE, TPCHDate};
        for (idx, day) in DAYS.iter().enumerate() {
            let (year, month, date) = TPCHDate::new(MIN_GENERATE_DATE + idx as i32).to_ymd();
            assert_eq!((day.year - 1900, day.month, day.day), (year, month, date));
        }
    }
}
