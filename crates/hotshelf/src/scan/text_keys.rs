//! Whether a text is one of the keys of a join's build side, as a function that Vortex evaluates on stored columns: for
//! each value of a dictionary once.

use arrow::datatypes::Schema;
use datafusion::physical_expr::expressions::Column;
use vortex::array::arrays::varbinview::VarBinViewArrayExt;
use vortex::array::arrays::{BoolArray, VarBinViewArray};
use vortex::array::{ArrayRef, ExecutionCtx, IntoArray};
use vortex::buffer::BitBuffer;
use vortex::dtype::DType;
use vortex::error::{VortexResult, vortex_bail};
use vortex::expr::{Expression, get_item, root};
use vortex::scalar_fn::{
    Arity, ChildName, ExecutionArgs, ScalarFnId, ScalarFnVTable, ScalarFnVTableExt,
};
use vortex::session::registry::CachedId;

use crate::star::InKeys;

/// The test of one column of texts. `schema` is what it refers to; the result names a column of the file. `None`: the
/// keys are of something else.
pub(super) fn text_keys(keys: &InKeys, schema: &Schema) -> Option<Expression> {
    let [column] = keys.columns() else {
        return None;
    };
    let column = column.downcast_ref::<Column>()?;
    let field = schema.fields().get(column.index())?;
    let texts = get_item(field.name().as_str(), root());
    let is_text = field.data_type().is_string();
    is_text.then(|| HasTextKey.new_expr(keys.clone(), [texts]))
}

/// NULL is NULL, which no filter passes.
#[derive(Clone)]
struct HasTextKey;

impl ScalarFnVTable for HasTextKey {
    type Options = InKeys;

    fn id(&self) -> ScalarFnId {
        static ID: CachedId = CachedId::new("hotshelf.has_text_key");
        *ID
    }

    fn arity(&self, _keys: &InKeys) -> Arity {
        Arity::Exact(1)
    }

    fn child_name(&self, _keys: &InKeys, _child: usize) -> ChildName {
        ChildName::from("text")
    }

    fn return_dtype(&self, _keys: &InKeys, args: &[DType]) -> VortexResult<DType> {
        match args {
            [DType::Utf8(nullability)] => Ok(DType::Bool(*nullability)),
            args => vortex_bail!("keys are texts, not {args:?}"),
        }
    }

    fn execute(
        &self,
        keys: &InKeys,
        args: &dyn ExecutionArgs,
        ctx: &mut ExecutionCtx,
    ) -> VortexResult<ArrayRef> {
        let texts = args.get(0)?;
        let nullability = texts.dtype().nullability();
        let texts = texts.execute::<VarBinViewArray>(ctx)?;
        let validity = texts.varbinview_validity();
        let valid = validity.execute_mask(texts.len(), ctx)?;
        let resolved = texts.resolved_views();
        let has_key = |row: usize| {
            let view = &resolved.views()[row];
            if view.is_inlined() {
                return keys.has_text(view.as_inlined().value());
            }
            let view = view.as_view();
            let buffer = resolved.buffers()[view.buffer_index as usize];
            keys.has_text(&buffer[view.as_range()])
        };
        let found = BitBuffer::collect_bool(texts.len(), |row| valid.value(row) && has_key(row));
        Ok(BoolArray::new(found, validity.union_nullability(nullability)).into_array())
    }

    fn is_strict(&self, _keys: &InKeys) -> bool {
        true
    }

    fn is_infallible(&self, _keys: &InKeys) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::StringArray;
    use arrow::datatypes::{DataType, Field};
    use datafusion::physical_expr::PhysicalExpr;
    use vortex::VortexSessionDefault;
    use vortex::array::VortexSessionExecute;
    use vortex::array::arrays::{DictArray, PrimitiveArray, StructArray};
    use vortex::array::builtins::ArrayBuiltins;
    use vortex::buffer::Buffer;
    use vortex::mask::Mask;
    use vortex::session::VortexSession;

    use super::*;
    use crate::star::{KeyCollector, key_words};

    const LONG: &str = "a text that is longer than a view has room for";

    fn schema(data_type: DataType) -> Schema {
        Schema::new(vec![Field::new("t", data_type, true)])
    }

    fn keys() -> InKeys {
        let mut keys = KeyCollector::of(&[&DataType::Utf8]);
        let texts = Arc::new(StringArray::from(vec![Some("a"), None, Some(LONG)]));
        keys.add(&key_words(&[texts]).unwrap()).unwrap();
        let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new("t", 0));
        keys.finish(vec![column]).unwrap()
    }

    fn passing(texts: ArrayRef) -> Vec<bool> {
        let session = <VortexSession as VortexSessionDefault>::default();
        let mut ctx = session.create_execution_ctx();
        let len = texts.len();
        let rows = StructArray::from_fields(&[("t", texts)]).unwrap();
        let test = text_keys(&keys(), &schema(DataType::Utf8View)).unwrap();
        let found = rows.into_array().apply(&test).unwrap();
        let found = found.fill_null(false).unwrap();
        let found = found.execute::<Mask>(&mut ctx).unwrap();
        (0..len).map(|row| found.value(row)).collect()
    }

    #[test]
    fn texts_pass_that_are_keys_in_views_and_in_dictionaries() {
        let rows = [Some("a"), None, Some("b"), Some(LONG), Some("")];
        let plain = VarBinViewArray::from_iter_nullable_str(rows).into_array();
        assert_eq!(passing(plain), [true, false, false, true, false]);
        let values = VarBinViewArray::from_iter_nullable_str([Some(LONG), None, Some("b")]);
        let codes = PrimitiveArray::from_iter([0u8, 1, 2, 2, 0, 0]).into_array();
        let dictionary = DictArray::try_new(codes, values.into_array()).unwrap();
        let expected = [true, false, false, false, true, true];
        assert_eq!(passing(dictionary.into_array()), expected);
        assert!(
            passing(VarBinViewArray::from_iter_str(Vec::<&str>::new()).into_array()).is_empty()
        );
    }

    #[test]
    fn columns_of_other_types_are_not_tested() {
        assert!(text_keys(&keys(), &schema(DataType::Int64)).is_none());
        let numbers = PrimitiveArray::new(
            Buffer::from_iter([1i64]),
            vortex::array::validity::Validity::NonNullable,
        );
        let rows = StructArray::from_fields(&[("t", numbers.into_array())]).unwrap();
        let test = text_keys(&keys(), &schema(DataType::Utf8)).unwrap();
        assert!(test.bind(rows.dtype()).is_err());
    }
}
