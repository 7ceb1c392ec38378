import { describe, expect, it } from 'vitest'
import type { Condition, Watchpoint } from '~/api/types'
import { draftOf, newDraft, parametersOf, problems, readNumber, specOf, withCondition } from './draft'

const common = {
  platforms: [],
  initial_only: false,
  meaning: '',
  advice: [],
  available: true,
  unavailable_because: '',
}

function parameter(name: string, kind: 'check' | 'support' | 'hidden', values: string, more: object = {}) {
  return { name, kind, values, boolean: false, default: null, requires: [], ...more }
}

const range: Condition = {
  ...common,
  id: 'tensor_range',
  abbreviation: 'TR',
  target: 'tensor',
  parameters: [
    parameter('range_start_inclusive', 'support', 'a finite number'),
    parameter('range_end_inclusive', 'support', 'a finite number'),
    parameter('range_percentage_gt', 'check', 'a percentage from 0 to 100', {
      requires: ['range_start_inclusive', 'range_end_inclusive'],
    }),
    parameter('max_min_lt', 'check', 'a finite number greater than 0'),
  ],
}
const unchanged: Condition = {
  ...common,
  id: 'weight_not_changed',
  abbreviation: 'WNC',
  target: 'weight',
  parameters: [
    parameter('rtol', 'check', 'a finite number, 0 or greater', { default: 1e-5 }),
    parameter('atol', 'hidden', 'a finite number, 0 or greater', { default: 1e-8 }),
    parameter('equal_nan', 'hidden', 'false', { boolean: true, default: false }),
  ],
}

describe('numbers', () => {
  it('may have exponents, signs and no leading digit', () => {
    expect(['1e-5', ' -3 ', '.5', '2.', '+1E+3', '−4'].map(readNumber)).toEqual([1e-5, -3, 0.5, 2, 1000, -4])
  })
  it('are nothing else', () => {
    expect(['', 'nan', '1e999', '0x10', '1,5', '5 %', 'e3'].map(readNumber)).toEqual(Array(7).fill(null))
  })
})

describe('a draft', () => {
  it('starts with the defaults and the nodes that the condition is meant for', () => {
    const draft = newDraft(unchanged, null)
    expect(draft).toMatchObject({ values: { rtol: '1e-5', atol: '1e-8' }, preset: 'weights', edits: [] })
    expect(problems(draft, unchanged)).toEqual([])
  })
  it('for a node watches nothing else, and keeps it when the condition changes', () => {
    const draft = newDraft(unchanged, { path: 'Default/fc', graph: 'g' })
    const changed = withCondition(draft, unchanged, range)
    expect(changed).toMatchObject({ preset: 'none', condition: 'tensor_range' })
    expect(changed.edits).toEqual([{ add: true, path: 'Default/fc', graph: 'g', containing: '' }])
  })
  it('takes the nodes of another condition unless they were chosen', () => {
    const draft = newDraft(unchanged, null)
    expect(withCondition(draft, unchanged, range).preset).toBe('all')
    expect(withCondition({ ...draft, preset: 'hidden' }, unchanged, range).preset).toBe('hidden')
  })
  it('needs a threshold, and companions only beside one that needs them', () => {
    const draft = newDraft(range, null)
    expect(problems(draft, range).map((problem) => problem.text)).toEqual(['noThreshold'])
    draft.values = { range_percentage_gt: '50' }
    expect(problems(draft, range).map((problem) => [problem.field, problem.text])).toEqual([
      ['range_start_inclusive', 'needs'],
      ['range_end_inclusive', 'needs'],
    ])
    draft.values = { max_min_lt: '1e-3', range_start_inclusive: '1' }
    expect(problems(draft, range)).toEqual([])
    expect(parametersOf(draft, range)).toEqual({ max_min_lt: 1e-3 })
  })
  it('says which values are invalid', () => {
    const draft = newDraft(range, null)
    draft.values = {
      range_percentage_gt: '101',
      range_start_inclusive: '2',
      range_end_inclusive: '1',
      max_min_lt: 'x',
    }
    draft.persistence = '0'
    expect(problems(draft, range).map((problem) => [problem.field, problem.text])).toEqual([
      ['range_percentage_gt', 'outOfRange'],
      ['max_min_lt', 'notNumber'],
      ['range_end_inclusive', 'rangeOrder'],
      ['persistence', 'persistence'],
    ])
  })
  it('of a watchpoint produces the same watchpoint', () => {
    const watchpoint: Watchpoint = {
      id: 3,
      name: 'mine',
      condition: 'weight_not_changed',
      abbreviation: 'WNC',
      parameters: { rtol: 0, atol: 0, equal_nan: false },
      selection: 'name:conv1:.*',
      edits: [],
      severity: 'error',
      enabled: true,
      nodes: 4,
      text: '',
      words: '',
      persistence: 10,
      hits: 0,
    }
    expect(specOf(draftOf(watchpoint), unchanged)).toEqual({
      condition: 'weight_not_changed',
      parameters: { rtol: 0, atol: 0 },
      name: 'mine',
      selection: 'name:conv1:.*',
      edits: [],
      severity: 'error',
      enabled: true,
      persistence: 10,
    })
  })
})
