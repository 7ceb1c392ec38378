import type { Condition, ConditionParameter, Watchpoint, WatchpointChange, WatchpointSpec } from '~/api/types'
import { limitOf } from '~/parts/conditionWords'
import type { WatchTarget } from './watchNode'

export const MOST_PERSISTENCE = 1_000_000

/** The input of the dialog; numbers as typed. */
export interface Draft {
  condition: string
  values: Record<string, string>
  preset: string
  /** The pattern or list of names that some presets need. */
  argument: string
  edits: Watchpoint['edits']
  persistence: string
  severity: 'error' | 'warning'
  name: string
}

export const PRESETS = [
  'all',
  'weights',
  'trainable_weights',
  'matrices',
  'inner_matrices',
  'gradients',
  'matrix_gradients',
  'activations',
  'hidden',
  'name',
  'type',
  'activation',
  'hidden_activation',
  'none',
] as const

/** Presets that need an argument. */
export const WITH_ARGUMENT: ReadonlySet<string> = new Set(['name', 'type', 'activation', 'hidden_activation'])

const OF_TARGET = {
  tensor: 'all',
  weight: 'weights',
  gradient: 'gradients',
  activation: 'activations',
} as const

/** Return a draft of a condition with its defaults. */
export function newDraft(condition: Condition, target: WatchTarget | null): Draft {
  return {
    condition: condition.id,
    values: defaults(condition),
    preset: target ? 'none' : OF_TARGET[condition.target],
    argument: '',
    edits: target ? [{ add: true, path: target.path, graph: target.graph, containing: '' }] : [],
    persistence: '1',
    severity: condition.parameters.length === 0 ? 'error' : 'warning',
    name: '',
  }
}

/** Return the draft for another condition; nodes chosen by the user are kept. */
export function withCondition(draft: Draft, before: Condition | undefined, condition: Condition): Draft {
  const fresh = newDraft(condition, null)
  const hasOwnNodes = draft.edits.length > 0 || (before && draft.preset !== OF_TARGET[before.target])
  return {
    ...draft,
    condition: condition.id,
    values: fresh.values,
    severity: fresh.severity,
    ...(hasOwnNodes ? {} : { preset: fresh.preset, argument: '' }),
  }
}

export function draftOf(watchpoint: Watchpoint): Draft {
  const [preset = 'all', ...argument] = watchpoint.selection.split(':')
  return {
    condition: watchpoint.condition,
    values: Object.fromEntries(
      Object.entries(watchpoint.parameters).flatMap(([name, value]) =>
        typeof value === 'number' ? [[name, numberText(value)]] : [],
      ),
    ),
    preset,
    argument: argument.join(':'),
    edits: watchpoint.edits,
    persistence: String(watchpoint.persistence),
    severity: watchpoint.severity,
    name: watchpoint.name,
  }
}

function defaults(condition: Condition): Record<string, string> {
  return Object.fromEntries(
    condition.parameters.flatMap((parameter) =>
      typeof parameter.default === 'number' ? [[parameter.name, numberText(parameter.default)]] : [],
    ),
  )
}

function numberText(value: number): string {
  return value !== 0 && Math.abs(value) < 1e-3 ? value.toExponential() : String(value)
}

/** Parse a number as users write it: `0.1`, `1e-5`, `-3`; null if the text is not a number. */
export function readNumber(text: string): number | null {
  const trimmed = text.trim().replace('−', '-')
  if (!/^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(trimmed)) return null
  const value = Number(trimmed)
  return Number.isFinite(value) ? value : null
}

/** An error in a draft: the field, and the key of a message with its values. */
export interface Problem {
  field: string
  text: 'notNumber' | 'outOfRange' | 'noThreshold' | 'needs' | 'rangeOrder' | 'persistence' | 'argument'
  values?: Record<string, string>
}

const CHECKS: Record<string, (value: number) => boolean> = {
  'a finite number, 0 or greater': (value) => value >= 0,
  'a finite number greater than 0': (value) => value > 0,
  'a percentage from 0 to 100': (value) => value >= 0 && value <= 100,
}

export function problems(draft: Draft, condition: Condition): Problem[] {
  const result: Problem[] = []
  const given = (name: string) => (draft.values[name] ?? '').trim() !== ''
  for (const parameter of shownParameters(condition)) {
    const text = draft.values[parameter.name] ?? ''
    if (text.trim() === '') continue
    const value = readNumber(text)
    if (value === null) result.push({ field: parameter.name, text: 'notNumber' })
    else if (CHECKS[parameter.values]?.(value) === false) {
      result.push({ field: parameter.name, text: 'outOfRange', values: { range: parameter.values } })
    }
  }
  const thresholds = condition.parameters.filter((parameter) => parameter.kind === 'check')
  if (thresholds.length > 0 && !thresholds.some((threshold) => given(threshold.name))) {
    result.push({ field: thresholds[0]?.name ?? '', text: 'noThreshold' })
  }
  for (const companion of neededCompanions(draft, condition)) {
    if (!given(companion)) result.push({ field: companion, text: 'needs' })
  }
  const start = readNumber(draft.values['range_start_inclusive'] ?? '')
  const end = readNumber(draft.values['range_end_inclusive'] ?? '')
  if (start !== null && end !== null && start > end) {
    result.push({ field: 'range_end_inclusive', text: 'rangeOrder' })
  }
  const steps = readNumber(draft.persistence)
  if (steps === null || !Number.isInteger(steps) || steps < 1 || steps > MOST_PERSISTENCE) {
    result.push({ field: 'persistence', text: 'persistence' })
  }
  if (WITH_ARGUMENT.has(draft.preset) && draft.argument.trim() === '') {
    result.push({ field: 'argument', text: 'argument' })
  }
  return result
}

/** Return the parameters that users can set, without flags, which accept only "false". */
export function shownParameters(condition: Condition): ConditionParameter[] {
  return condition.parameters.filter((parameter) => !parameter.boolean)
}

/** Return the companion parameters required by the thresholds that have a value. */
export function neededCompanions(draft: Draft, condition: Condition): string[] {
  const users = condition.parameters.filter(
    (parameter) => parameter.kind === 'check' && (draft.values[parameter.name] ?? '').trim() !== '',
  )
  return [...new Set(users.flatMap((parameter) => parameter.requires))]
}

export function selectionOf(draft: Draft): string {
  return WITH_ARGUMENT.has(draft.preset) ? `${draft.preset}:${draft.argument.trim()}` : draft.preset
}

/** Return the values in effect; companions that no threshold requires are left out. */
export function parametersOf(draft: Draft, condition: Condition): Record<string, number> {
  const needed = neededCompanions(draft, condition)
  return Object.fromEntries(
    shownParameters(condition).flatMap((parameter) => {
      const value = readNumber(draft.values[parameter.name] ?? '')
      const isIdle = parameter.kind === 'support' && !needed.includes(parameter.name)
      return value === null || isIdle ? [] : [[parameter.name, value]]
    }),
  )
}

export function specOf(draft: Draft, condition: Condition): WatchpointSpec {
  return {
    condition: draft.condition,
    parameters: parametersOf(draft, condition),
    name: draft.name.trim(),
    selection: selectionOf(draft),
    edits: draft.edits,
    severity: draft.severity,
    enabled: true,
    persistence: Number(draft.persistence),
  }
}

export function changeOf(draft: Draft, condition: Condition): WatchpointChange {
  return {
    parameters: parametersOf(draft, condition),
    name: draft.name.trim(),
    selection: selectionOf(draft),
    edits: draft.edits,
    further_edits: [],
    severity: draft.severity,
    persistence: Number(draft.persistence),
  }
}

/** Whether a parameter is advanced: few users change it. */
export function isAdvanced(parameter: ConditionParameter): boolean {
  return parameter.kind === 'hidden'
}

export function isPercentage(name: string): boolean {
  return (limitOf(name)?.quantity ?? name).includes('percentage') || /^(zeros|outside)_of_unit$/.test(name)
}
