import type { TFunction } from 'i18next'
import { useMemo } from 'react'
import { useTranslation } from 'react-i18next'
import type { HitRecord, Watchpoint } from '~/api/types'
import { conditionTexts } from './conditionTexts'
import { short } from './numbers'

/** The fields of a watchpoint that its sentence needs. */
export type Watching = Pick<Watchpoint, 'condition' | 'parameters' | 'selection' | 'persistence'> & {
  edits: readonly { add: boolean; path: string }[]
}

/** A threshold: what is compared, and how. */
export interface Limit {
  quantity: string
  comparator: 'gt' | 'lt' | 'ge' | 'le'
}

/** Parse the name of a parameter (`abs_mean_gt`); null for one that only supports another. */
export function limitOf(parameter: string): Limit | null {
  if (parameter === 'rtol') return { quantity: 'rtol', comparator: 'le' }
  const match = /^(.+)_(gt|lt|ge|le)$/.exec(parameter)
  const [, quantity, comparator] = match ?? []
  return quantity === undefined ? null : { quantity, comparator: comparator as Limit['comparator'] }
}

export const SIGNS = { gt: '>', lt: '<', ge: '≥', le: '≤' } as const

/** Format the value of a parameter with its unit. */
export function withUnit(quantity: string, value: number | string | boolean | null): string {
  const text =
    typeof value === 'boolean' ? String(value) : typeof value === 'number' ? brief(value) : short(value)
  return quantity.includes('percentage') ? `${text} %` : text
}

/** Format a number as users write it: `1e-5`, where `short` would add zeros. */
function brief(value: number): string {
  const exponential = value.toExponential()
  const isRound = exponential.length <= 6 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e5)
  return isRound && value !== 0 ? exponential.replace('e+', 'e') : short(value)
}

/** Texts about conditions, watchpoints and hits in the user's language. */
export interface ConditionWords {
  label: (condition: string) => string
  /** What a watchpoint does, in one sentence. */
  sentence: (watching: Watching) => string
  selection: (selection: string, edits: Watching['edits']) => string
  /** The thresholds on one line: `> 50 %`, `NaN, ±Inf`. */
  limits: (watching: Watching) => string
  /** The measured value and the limit, for each threshold of a hit. */
  measures: (hit: HitRecord) => Measure[]
  /** Why the tensor could not be checked. */
  errors: (hit: HitRecord) => string[]
}

export interface Measure {
  name: string
  label: string
  actual: string
  limit: string
  hit: boolean
}

export function conditionWords(t: TFunction): ConditionWords {
  const label = (condition: string) => {
    const words = condition.replaceAll('_', ' ')
    return t(`labels.${condition}`, { defaultValue: words.charAt(0).toUpperCase() + words.slice(1) })
  }
  const quantityOf = (group: string, quantity: string, values: Record<string, unknown>) =>
    t(`${group}.${quantity}`, {
      defaultValue: quantity.replaceAll('_', ' '),
      start: bound(values['range_start_inclusive'], '−∞'),
      end: bound(values['range_end_inclusive'], '∞'),
    })

  const clauses = ({ condition, parameters }: Watching): string[] => {
    const texts = Object.entries(parameters).flatMap(([name, value]) => {
      const limit = limitOf(name)
      if (limit === null || typeof value === 'boolean') return []
      if (name === 'rtol') return [unchanged(t, value, Number(parameters['atol'] ?? 0))]
      const quantity = quantityOf('quantities', limit.quantity, parameters)
      return [t(`comparators.${limit.comparator}`, { quantity, value: withUnit(limit.quantity, value) })]
    })
    return texts.length > 0 ? texts : [t(`flags.${flagOf(condition)}`, { condition: label(condition) })]
  }

  const selection: ConditionWords['selection'] = (text, edits) => {
    const [kind = '', ...rest] = text.split(':')
    const where = t(`selections.${kind}`, {
      argument: rest.join(':').replaceAll(',', ', '),
      defaultValue: text,
    })
    if (edits.length === 0) return where
    const [only] = edits
    if (kind === 'none' && edits.length === 1 && only?.add) return t('onlyPath', { path: only.path })
    return kind === 'none' ? where : t('withEdits', { where })
  }

  return {
    label,
    selection,
    sentence: (watching) => {
      const where = selection(watching.selection, watching.edits)
      const persistence = watching.persistence > 1 ? t('inARow', { steps: watching.persistence }) : ''
      return t('sentence', { where, clauses: clauses(watching).join(t('or')), persistence })
    },
    limits: ({ condition, parameters }) => {
      const texts = Object.entries(parameters).flatMap(([name, value]) => {
        const limit = limitOf(name)
        if (limit === null) return []
        const text = `${SIGNS[limit.comparator]} ${withUnit(limit.quantity, value)}`
        return [name === 'rtol' ? `rtol ${text}` : text]
      })
      return texts.length === 0 && flagOf(condition).endsWith('overflow') ? 'NaN, ±Inf' : texts.join(' · ')
    },
    measures: (hit) => {
      const presets = Object.fromEntries(
        hit.parameters.map((parameter) => [parameter.name, parameter.preset]),
      )
      const measures = hit.parameters.flatMap((parameter) => {
        const limit = limitOf(parameter.name)
        if (limit === null) return []
        const limitText = `${SIGNS[limit.comparator]} ${withUnit(limit.quantity, parameter.preset)}`
        // The value for `rtol` is not reported: it would need every element.
        if (parameter.name === 'rtol' && parameter.actual == null) {
          const isExact = parameter.preset === 0
          return {
            name: parameter.name,
            label: t('notChanged'),
            actual: '',
            limit: isExact ? '' : limitText,
            hit: parameter.hit,
          }
        }
        return {
          name: parameter.name,
          label: quantityOf('measured', limit.quantity, presets),
          actual: withUnit(limit.quantity, parameter.actual ?? null),
          limit: limitText,
          hit: parameter.hit,
        }
      })
      return measures.length > 0 || !hit.hit
        ? measures
        : [{ name: hit.condition, label: holding(t, hit), actual: '', limit: '', hit: true }]
    },
    errors: (hit) =>
      [1, 2, 4, 8, 16, 32].filter((bit) => hit.error_code & bit).map((bit) => t(`errors.${bit}`)),
  }
}

function bound(value: unknown, missing: string): string {
  return typeof value === 'number' ? brief(value) : missing
}

function unchanged(t: TFunction, rtol: number, atol: number): string {
  return rtol === 0 && atol === 0
    ? t('unchanged')
    : t('unchangedWithin', { rtol: brief(rtol), atol: brief(atol) })
}

function holding(t: TFunction, hit: HitRecord): string {
  const flag = flagOf(hit.condition)
  if (flag === 'operator_overflow') return t('overflowed')
  if (flag === 'weights_differ') return t('differs')
  const kind = ['nanAndInf', 'nan', 'inf', 'nanAndInf'][hit.error_code & 3] ?? 'nanAndInf'
  return flag === 'other' ? '' : t('contains', { what: t(kind) })
}

const FLAGS = new Map([
  ['tensor_overflow', 'overflow'],
  ['weight_overflow', 'overflow'],
  ['gradient_exploding', 'overflow'],
  ['unintended_overflow', 'unintended_overflow'],
  ['operator_overflow', 'operator_overflow'],
  ['weights_differ', 'weights_differ'],
])

function flagOf(condition: string): string {
  return FLAGS.get(condition) ?? 'other'
}

export function useConditionWords(): ConditionWords {
  const { t } = useTranslation(conditionTexts)
  return useMemo(() => conditionWords(t), [t])
}
