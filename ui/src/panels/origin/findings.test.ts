import { describe, expect, it } from 'vitest'
import type { HitRecord, NodeHits, Origin } from '~/api/types'
import { addressOf, findings, nodeOf } from './findings'
import { excerptOf } from './excerpt'
import { remedyOf, whereUncertain } from './remedies'

function origin(anomaly: string, more: Partial<Origin> = {}): Origin {
  return {
    anomaly,
    sentence: '',
    address: `0/g/Default/${anomaly}-op0:0@52`,
    node: `Default/${anomaly}-op0`,
    type: 'log',
    step: 52,
    certain: true,
    arrived: false,
    unseen: null,
    is_older: false,
    changed: false,
    is_left_out: false,
    stack: [],
    line: null,
    excerpt: [],
    candidates: [],
    also: [],
    ...more,
  }
}

function hit(condition: string, more: Partial<HitRecord> = {}): HitRecord {
  return {
    watchpoint: 1,
    may_be_older: false,
    name: '',
    condition,
    abbreviation: 'XX',
    severity: 'warning',
    hit: true,
    parameters: [],
    error_code: 0,
    errors: [],
    ...more,
  }
}

function node(name: string, ...hits: HitRecord[]): NodeHits {
  return {
    rank: 0,
    graph: 'g',
    node: name,
    type: '',
    step: 52,
    position: 1,
    line: null,
    tensors: [{ slot: 0, io: 'output', address: `0/g/${name}:0@52`, hits }],
  }
}

const kinds = (results: ReturnType<typeof findings>) =>
  results.map((finding) => (finding.kind === 'hit' ? finding.hit.condition : finding.origin.anomaly))

describe('what the banner names', () => {
  it('is every origin that the server reports, in its order', () => {
    const origins = [origin('inf'), origin('nan'), origin('explosion')]
    expect(kinds(findings(origins, [node('a', hit('tensor_overflow'))]))).toEqual(['inf', 'nan', 'explosion'])
  })
  it('is the first hit if there is no origin', () => {
    const results = findings([], [node('a', hit('gradient_growth')), node('b', hit('gradient_growth'))])
    expect(kinds(results)).toEqual(['gradient_growth'])
    expect(results.map(nodeOf)).toEqual([{ rank: 0, graph: 'g', name: 'a' }])
    expect(results.map(addressOf)).toEqual(['0/g/a:0@52'])
  })
  it('is an error before a warning, and never a failed check', () => {
    const nodes = [
      node('a', hit('weight_not_changed', { hit: false, error_code: 4 })),
      node('b', hit('weight_not_changed')),
      node('c', hit('weight_growth', { severity: 'error' })),
    ]
    expect(findings([], nodes).map((finding) => nodeOf(finding).name)).toEqual(['c'])
    expect(findings([], nodes.slice(0, 1))).toEqual([])
  })
  it('is every origin if nothing hit and the user requested a search', () => {
    expect(kinds(findings([origin('all_zero')], []))).toEqual(['all_zero'])
  })
  it('of an optimizer is the operator, not the parameter that shows it', () => {
    const [finding] = findings(
      [origin('nan', { address: '0/g/fc.weight:0@52', node: 'Optimizer/sgd-op0' })],
      [],
    )
    expect(finding && nodeOf(finding)).toEqual({ rank: 0, graph: 'g', name: 'Optimizer/sgd-op0' })
  })
})

describe('what to do', () => {
  const remedy = (anomaly: string, type: string, more: Partial<Origin> = {}) =>
    remedyOf({ kind: 'origin', key: '', origin: origin(anomaly, { type, ...more }) })

  it('follows from the operator, in the spelling of either framework', () => {
    expect(
      ['log', 'Log', 'div', 'RealDiv', 'sqrt', 'exp', 'bmm', 'Conv2D'].map((type) => remedy('inf', type)),
    ).toEqual(['logarithm', 'logarithm', 'division', 'division', 'root', 'exponential', 'range', 'range'])
  })
  it('differs for NaN from infinities, for anomalies in the inputs, and for uncertain origins', () => {
    expect(remedy('nan', 'Sub')).toBe('infinities')
    expect(remedy('nan', 'Parameter', { arrived: true })).toBe('arrived')
    expect(remedy('nan', 'Parameter', { arrived: true, changed: true })).toBe('changed')
    expect(remedy('nan', 'log', { certain: false })).toBe('uncertain')
    expect(remedy('nan', 'Parameter', { arrived: true, unseen: [1, 99] })).toBe('unseen')
    expect(remedy('explosion', 'mul')).toBe('explosion')
    expect(remedy('nan', 'Custom')).toBe('other')
  })
  it('is possible in this kind of run, if the origin is uncertain', () => {
    const uncertain = (framework: string, dump: string, live = false) =>
      whereUncertain({ framework, dump, capabilities: { live } })
    expect(whereUncertain(undefined)).toBe('uncertain')
    expect(uncertain('pytorch', '', true)).toBe('uncertain')
    expect(uncertain('pytorch', 'runs/1')).toBe('uncertain')
    expect(uncertain('mindspore', '', true)).toBe('uncertainMindSpore')
    expect(uncertain('mindspore', 'runs/1')).toBe('uncertainMindSpore')
    expect(uncertain('mindspore', 'resnet')).toBe('uncertainDump')
  })
})

describe('the code around a line', () => {
  const frame = { file: 'a.py', line: 2, code: 'x = f(y)', has_substack: false, is_user_code: true }

  it('is in the text of its file', () => {
    expect(excerptOf('a\n  x = f(y)\nb', frame)).toEqual([
      { line: 1, code: 'a' },
      { line: 2, code: '  x = f(y)' },
      { line: 3, code: 'b' },
    ])
  })
  it('is unknown if the file has changed or has no text', () => {
    expect(excerptOf('a\nb\nx = f(y)', frame)).toEqual([])
    expect(excerptOf('', frame)).toEqual([])
  })
})
