import type { HitRecord, NodeHits, Origin } from '~/api/types'
import { parseAddress } from '~/parts/tensorAddress'
import type { NodeChoice } from '~/state/store'

/** What the banner names: where an anomaly began, or, where nothing is known of that, the first hit. */
export type Finding =
  | { kind: 'origin'; key: string; origin: Origin }
  | { kind: 'hit'; key: string; node: NodeHits; hit: HitRecord }

const NON_FINITE = new Set(['nan', 'inf', 'overflow'])

/** Conditions that a certain anomaly explains, by parts of their names. */
const EXPLAINS: Record<string, RegExp> = {
  explosion: /too_large|growth|change_too_large|range/,
  all_zero: /zero|dead_units|vanishing/,
}

/**
 * What to tell, the most telling first.
 *
 * NaN and Inf always count. Where hits have to do with neither, an origin counts that may explain them: zeros of an
 * optimizer's state say nothing of a gradient that grew. Where there is none, the first hit is the finding.
 */
export function findings(origins: readonly Origin[], nodes: readonly NodeHits[]): Finding[] {
  const hits = nodes.flatMap((node) => node.tensors.flatMap((tensor) => tensor.hits)).filter((one) => one.hit)
  const conditions = new Set(hits.map((one) => one.condition))
  const explains = (origin: Origin) =>
    NON_FINITE.has(origin.anomaly) ||
    hits.length === 0 ||
    [...conditions].some((condition) => EXPLAINS[origin.anomaly]?.test(condition))
  const found: Finding[] = origins
    .filter(explains)
    .map((origin) => ({ kind: 'origin', key: `${origin.anomaly}@${origin.address}`, origin }))
  if (found.length === 0) {
    const first = firstHit(nodes)
    if (first) found.push(first)
  }
  // A value that exploded before is worth a look beside what came of it.
  const others = origins.filter((origin) => !explains(origin) && origin.anomaly === 'explosion')
  return [
    ...found,
    ...others.map((origin): Finding => ({
      kind: 'origin',
      key: `${origin.anomaly}@${origin.address}`,
      origin,
    })),
  ]
}

function firstHit(nodes: readonly NodeHits[]): Finding | null {
  const all = nodes.flatMap((node) =>
    node.tensors.flatMap((tensor) =>
      tensor.hits.filter((one) => one.hit).map((hit) => ({ node, tensor, hit })),
    ),
  )
  const first = all.find((one) => one.hit.severity === 'error') ?? all[0]
  return first ? { kind: 'hit', key: `${first.hit.condition}@${first.tensor.address}`, ...first } : null
}

/** The node that a finding is about. */
export function nodeOf(finding: Finding): NodeChoice {
  if (finding.kind === 'hit') {
    return { rank: finding.node.rank, graph: finding.node.graph, name: finding.node.node }
  }
  const address = parseAddress(finding.origin.address)
  return {
    rank: address?.rank ?? 0,
    graph: address?.graph ?? '',
    name: finding.origin.node || (address?.node ?? ''),
  }
}

/** The tensor that shows it. */
export function addressOf(finding: Finding): string {
  if (finding.kind === 'origin') return finding.origin.address
  return finding.node.tensors.find((one) => one.hits.includes(finding.hit))?.address ?? ''
}

export function stepOf(finding: Finding): number {
  return finding.kind === 'origin' ? finding.origin.step : finding.node.step
}

/** Whether an origin is not told by its operator alone: its code is a range of lines, or it is not certain. */
export function isVague(finding: Finding): boolean {
  if (finding.kind === 'hit' || finding.origin.arrived) return false
  return !finding.origin.certain || typeof finding.origin.line?.end_line === 'number'
}
