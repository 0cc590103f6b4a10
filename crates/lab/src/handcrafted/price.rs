//! What a query's second costs on each kind of memory: the calculation of the paper's section 7 with any prices.

/// Modules of one kind of memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Module {
    pub dollars: f64,
    pub gigabytes: f64,
}

impl Module {
    /// `PRICE/GIGABYTES`, as in `575/128`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text} is not PRICE/GIGABYTES, such as 575/128");
        let (dollars, gigabytes) = text.split_once('/').ok_or_else(wrong)?;
        let number = |text: &str| {
            text.trim()
                .parse()
                .ok()
                .filter(|value: &f64| *value > 0.0 && value.is_finite())
        };
        Ok(Self {
            dollars: number(dollars).ok_or_else(wrong)?,
            gigabytes: number(gigabytes).ok_or_else(wrong)?,
        })
    }

    /// What this much of it costs, by the gigabyte.
    fn price(self, gigabytes: f64) -> f64 {
        self.dollars / self.gigabytes * gigabytes
    }
}

/// Slow and fast memory of the same size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    pub slow_dollars: f64,
    pub fast_dollars: f64,
    /// How much dearer the fast memory is.
    pub price_ratio: f64,
    /// How much longer queries take on the slow memory.
    pub time_ratio: f64,
    /// Above one, the slow memory does more for its price.
    pub advantage: f64,
}

/// Compares memory of this size by the time of the same queries.
pub fn compare(slow: Module, fast: Module, gigabytes: f64, time_ratio: f64) -> Comparison {
    let (slow_dollars, fast_dollars) = (slow.price(gigabytes), fast.price(gigabytes));
    let price_ratio = fast_dollars / slow_dollars;
    Comparison {
        slow_dollars,
        fast_dollars,
        price_ratio,
        time_ratio,
        advantage: price_ratio / time_ratio,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paper_s_prices_give_its_figures() {
        let (slow, fast) = (
            Module::parse("575/128").unwrap(),
            Module::parse("700/64").unwrap(),
        );
        let comparison = compare(slow, fast, 1536.0, 1.6);
        assert_eq!(comparison.slow_dollars, 6900.0);
        assert_eq!(comparison.fast_dollars, 16_800.0);
        assert!((comparison.price_ratio - 2.4).abs() < 0.05);
        assert!(comparison.advantage > 1.5);
    }

    #[test]
    fn what_is_no_price_is_refused() {
        for text in ["575", "x/128", "575/0", "-1/2", "inf/2"] {
            assert!(Module::parse(text).unwrap_err().contains(text));
        }
    }
}
