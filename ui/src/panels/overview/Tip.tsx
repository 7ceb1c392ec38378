import { useTranslation } from 'react-i18next'
import type { Overview } from '~/api/types'
import type { Cell } from '~/parts/gridKeys'
import { count, short } from '~/parts/numbers'
import { middleOf, type Geometry } from './geometry'
import classes from './overview.module.css'
import { HIT, INFINITE, NAN, NOTHING } from './scale'
import { overviewTexts } from './texts'

/** Return a function that describes a cell in words, for the tooltip and for screen readers. */
export function useCellWords(data: Overview) {
  const { t } = useTranslation(overviewTexts)
  return ({ row, column }: Cell) => {
    const tensor = data.rows[row]
    const span = data.steps[column]
    const mark = data.marks[row]?.[column] ?? NOTHING
    const value = data.values[row]?.[column] ?? null
    if (!tensor || !span) return null
    const isMany = tensor.tensors > 1 || span.first !== span.last
    const marks = [
      ...(mark & NAN ? [t('nan')] : []),
      ...(mark & INFINITE ? [t('infinite')] : []),
      ...(mark & HIT ? [t('hit')] : []),
    ]
    const name = t(`statistics.${data.statistic}`)
    return {
      many:
        tensor.tensors > 1 ? t('tensorsInRow', { count: tensor.tensors, number: count(tensor.tensors) }) : '',
      node: tensor.node,
      about: `${tensor.type} · ${t(tensor.io, { slot: tensor.slot })}`,
      step:
        span.first === span.last
          ? t('step', { step: span.first })
          : t('stepRange', { first: span.first, last: span.last }),
      value:
        mark & NOTHING && value === null
          ? t('nothing')
          : `${name}${isMany ? ` (${t('largest')})` : ''}: ${short(value)}`,
      marks: marks.join(', '),
      hint: tensor.tensors > 1 ? t('clickMany') : t('clickTensor'),
    }
  }
}

export function Tip({ data, cell, geometry }: { data: Overview; cell: Cell; geometry: Geometry }) {
  const words = useCellWords(data)(cell)
  if (!words) return null
  const { x, y } = middleOf(geometry, cell)
  const side = x > geometry.width / 2 ? { right: geometry.width - x + 14 } : { left: x + 14 }
  const end = y > geometry.height / 2 ? { bottom: geometry.height - y + 14 } : { top: y + 14 }
  return (
    <div className={classes['tip']} style={{ ...side, ...end }} data-testid="overview-tip">
      {words.many && <div className={classes['quiet']}>{words.many}</div>}
      <b>{words.node}</b>
      <div className={classes['quiet']}>{words.about}</div>
      <div>
        {words.step} · {words.value}
      </div>
      {words.marks && <div className={classes['tipMarks']}>{words.marks}</div>}
      <div className={classes['quiet']}>{words.hint}</div>
    </div>
  )
}
