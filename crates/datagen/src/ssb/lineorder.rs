//! The fact table, derived from TPC-H's `orders` and `lineitem`.
//!
//! A batch is a function of a range of orders: every column's random stream jumps to the first order, then all lines of
//! the orders are drawn. Money is in cents; with `price` of a part as in TPC-H (clause 4.2.3, `p_retailprice`):
//!
//! * `lo_extendedprice = lo_quantity * price`
//! * `lo_revenue = lo_extendedprice * (100 - lo_discount) / 100`
//! * `lo_supplycost = 6 * price / 10`
//! * `lo_ordtotalprice` = sum over the order's lines of `lo_revenue * (100 + lo_tax) / 100`
//!
//! all rounded down. As in TPC-H, every third customer never orders.

use std::ops::Range;
use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, Int32Array, RecordBatch, StringViewArray, UInt32Array};
use arrow::compute::take;
use tpchgen::dates::{MIN_GENERATE_DATE, TOTAL_DATE_RANGE};
use tpchgen::distribution::{Distribution, Distributions};
use tpchgen::generators::{LineItemGenerator, OrderGenerator, PartGeneratorIterator};
use tpchgen::random::RandomBoundedInt;

use super::schema::record_batch;
use super::streams::int_stream;
use super::{SsbTable, date};

/// Most lines an order has, and the draws each line column reserves per order.
const LINES_MAX: i32 = OrderGenerator::LINE_COUNT_MAX;
/// Order dates end early enough for TPC-H's shipping dates to stay within the calendar: 1992-01-01 to 1998-08-02.
const ORDER_DATE_MAX: i32 =
    MIN_GENERATE_DATE + TOTAL_DATE_RANGE - LineItemGenerator::ITEM_SHIP_DAYS - 1;
/// Portion of customers without orders.
const CUSTOMER_MORTALITY: i32 = 3;

const ORDER_DATE_SEED: i64 = 1_066_728_069;
const LINE_COUNT_SEED: i64 = 1_434_868_289;
const CUSTOMER_SEED: i64 = 851_767_375;
const PRIORITY_SEED: i64 = 591_449_447;
const PART_SEED: i64 = 1_808_217_256;
const SUPPLIER_SEED: i64 = 2_095_021_727;
const QUANTITY_SEED: i64 = 209_208_115;
const DISCOUNT_SEED: i64 = 554_590_007;
const TAX_SEED: i64 = 721_958_466;
const COMMIT_DATE_SEED: i64 = 904_914_315;
const SHIP_MODE_SEED: i64 = 675_466_456;

/// What lineorder's rows depend on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spec {
    pub(super) seed: u64,
    pub(super) customer_count: i32,
    pub(super) supplier_count: i32,
    pub(super) part_count: i32,
}

/// Rows of the orders in `orders`, counted from 0.
pub(super) fn row_count(seed: u64, orders: Range<u64>) -> u64 {
    let mut line_count = line_count_stream(seed, orders.start);
    orders.map(|_| line_count.next_value() as u64).sum()
}

/// All lines of the orders in `orders`, counted from 0.
pub(super) fn batch(spec: &Spec, orders: Range<u64>) -> RecordBatch {
    let mut streams = Streams::new(spec, orders.start);
    let row_capacity = (orders.end - orders.start) as usize * 4;
    let mut columns = Columns::with_capacity(row_capacity + row_capacity / 16);
    for order_idx in orders {
        streams.draw_order(spec, order_idx, &mut columns);
    }
    columns.finish()
}

fn line_count_stream(seed: u64, first_order: u64) -> RandomBoundedInt {
    int_stream(LINE_COUNT_SEED, seed, (1, LINES_MAX), 1, first_order)
}

/// One random stream per drawn column.
struct Streams {
    order_date: RandomBoundedInt,
    line_count: RandomBoundedInt,
    customer: RandomBoundedInt,
    priority: RandomBoundedInt,
    part: RandomBoundedInt,
    supplier: RandomBoundedInt,
    quantity: RandomBoundedInt,
    discount: RandomBoundedInt,
    tax: RandomBoundedInt,
    commit_date: RandomBoundedInt,
    ship_mode: RandomBoundedInt,
}

impl Streams {
    fn new(spec: &Spec, first_order: u64) -> Self {
        let per_order = |column, range| int_stream(column, spec.seed, range, 1, first_order);
        let per_line = |column, range| int_stream(column, spec.seed, range, LINES_MAX, first_order);
        Self {
            order_date: per_order(ORDER_DATE_SEED, (MIN_GENERATE_DATE, ORDER_DATE_MAX)),
            line_count: line_count_stream(spec.seed, first_order),
            customer: per_order(CUSTOMER_SEED, (1, spec.customer_count)),
            priority: per_order(PRIORITY_SEED, (0, PRIORITIES.len() as i32 - 1)),
            part: per_line(PART_SEED, (1, spec.part_count)),
            supplier: per_line(SUPPLIER_SEED, (1, spec.supplier_count)),
            quantity: per_line(QUANTITY_SEED, (1, 50)),
            discount: per_line(DISCOUNT_SEED, (0, 10)),
            tax: per_line(TAX_SEED, (0, 8)),
            commit_date: per_line(COMMIT_DATE_SEED, (30, 90)),
            ship_mode: per_line(SHIP_MODE_SEED, (0, SHIP_MODES.len() as i32 - 1)),
        }
    }

    /// Draws one order and appends its lines.
    fn draw_order(&mut self, spec: &Spec, order_idx: u64, columns: &mut Columns) {
        let day_idx = self.order_date.next_value() - MIN_GENERATE_DATE;
        let line_count = self.line_count.next_value();
        let customer = ordering_customer(self.customer.next_value(), spec.customer_count);
        let priority = self.priority.next_value() as u32;

        let order_key = OrderGenerator::make_order_key(order_idx as i64 + 1) as i32;
        let order_date = date::keys()[day_idx as usize];
        let mut total_price = 0;
        for line_number in 1..=line_count {
            columns.order_key.push(order_key);
            columns.line_number.push(line_number);
            columns.customer_key.push(customer);
            columns.order_date.push(order_date);
            columns.priority.push(priority);
            total_price += self.draw_line(day_idx, columns);
        }
        let row_count = columns.order_key.len();
        columns.total_price.resize(row_count, total_price);
        self.finish_order();
    }

    /// Draws the columns of one line and returns its price with tax.
    fn draw_line(&mut self, day_idx: i32, columns: &mut Columns) -> i32 {
        let part = self.part.next_value();
        let quantity = self.quantity.next_value();
        let discount = self.discount.next_value();
        let tax = self.tax.next_value();
        let commit_idx = day_idx + self.commit_date.next_value();

        let price = PartGeneratorIterator::calculate_part_price(i64::from(part)) as i32;
        let extended_price = price * quantity;
        let revenue = extended_price * (100 - discount) / 100;
        columns.part_key.push(part);
        columns.supplier_key.push(self.supplier.next_value());
        columns.quantity.push(quantity);
        columns.extended_price.push(extended_price);
        columns.discount.push(discount);
        columns.revenue.push(revenue);
        columns.supply_cost.push(6 * price / 10);
        columns.tax.push(tax);
        columns.commit_date.push(date::keys()[commit_idx as usize]);
        columns.ship_mode.push(self.ship_mode.next_value() as u32);
        (i64::from(revenue) * i64::from(100 + tax) / 100) as i32
    }

    /// Moves the line streams past the draws this order left unused. The order streams draw exactly once.
    fn finish_order(&mut self) {
        for stream in [
            &mut self.part,
            &mut self.supplier,
            &mut self.quantity,
            &mut self.discount,
            &mut self.tax,
            &mut self.commit_date,
            &mut self.ship_mode,
        ] {
            stream.row_finished();
        }
    }
}

/// The drawn customer, or a neighbour if the drawn one never orders.
fn ordering_customer(drawn: i32, customer_count: i32) -> i32 {
    let (mut customer, mut step) = (drawn, 1);
    while customer % CUSTOMER_MORTALITY == 0 {
        customer = (customer + step).min(customer_count);
        step = -step;
    }
    customer
}

/// Values of one batch, in drawing order; texts as indices into their lists.
struct Columns {
    order_key: Vec<i32>,
    line_number: Vec<i32>,
    customer_key: Vec<i32>,
    part_key: Vec<i32>,
    supplier_key: Vec<i32>,
    order_date: Vec<i32>,
    priority: Vec<u32>,
    quantity: Vec<i32>,
    extended_price: Vec<i32>,
    total_price: Vec<i32>,
    discount: Vec<i32>,
    revenue: Vec<i32>,
    supply_cost: Vec<i32>,
    tax: Vec<i32>,
    commit_date: Vec<i32>,
    ship_mode: Vec<u32>,
}

impl Columns {
    fn with_capacity(row_capacity: usize) -> Self {
        let ints = || Vec::with_capacity(row_capacity);
        Self {
            order_key: ints(),
            line_number: ints(),
            customer_key: ints(),
            part_key: ints(),
            supplier_key: ints(),
            order_date: ints(),
            priority: Vec::with_capacity(row_capacity),
            quantity: ints(),
            extended_price: ints(),
            total_price: ints(),
            discount: ints(),
            revenue: ints(),
            supply_cost: ints(),
            tax: ints(),
            commit_date: ints(),
            ship_mode: Vec::with_capacity(row_capacity),
        }
    }

    fn finish(self) -> RecordBatch {
        let ship_priority = vec![0; self.order_key.len()];
        let ints = |values: Vec<i32>| Arc::new(Int32Array::from(values)) as ArrayRef;
        record_batch(
            SsbTable::Lineorder,
            vec![
                ints(self.order_key),
                ints(self.line_number),
                ints(self.customer_key),
                ints(self.part_key),
                ints(self.supplier_key),
                ints(self.order_date),
                texts(&PRIORITIES, self.priority),
                texts(&SHIP_PRIORITIES, ship_priority),
                ints(self.quantity),
                ints(self.extended_price),
                ints(self.total_price),
                ints(self.discount),
                ints(self.revenue),
                ints(self.supply_cost),
                ints(self.tax),
                ints(self.commit_date),
                texts(&SHIP_MODES, self.ship_mode),
            ],
        )
    }
}

type Texts = LazyLock<StringViewArray>;

static PRIORITIES: Texts = LazyLock::new(|| list(Distributions::static_default().order_priority()));
static SHIP_MODES: Texts = LazyLock::new(|| list(Distributions::static_default().ship_modes()));
static SHIP_PRIORITIES: Texts = LazyLock::new(|| StringViewArray::from_iter_values(["0"]));

fn list(distribution: &Distribution) -> StringViewArray {
    StringViewArray::from_iter_values(distribution.get_values())
}

fn texts(list: &StringViewArray, indices: Vec<u32>) -> ArrayRef {
    take(list, &UInt32Array::from(indices), None).expect("indices were drawn within the list")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_third_customer_never_orders() {
        for customer_count in 2..40 {
            for drawn in 1..=customer_count {
                let customer = ordering_customer(drawn, customer_count);
                assert!((1..=customer_count).contains(&customer));
                assert_ne!(customer % CUSTOMER_MORTALITY, 0);
            }
        }
    }

    #[test]
    fn the_last_commit_date_lies_within_the_calendar() {
        let last_commit_idx = ORDER_DATE_MAX - MIN_GENERATE_DATE + 90;
        assert!((last_commit_idx as usize) < date::DAY_COUNT);
    }
}
