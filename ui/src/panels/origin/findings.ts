import type { HitRecord, NodeHits, Origin } from '~/api/types'
import { parseAddress } from '~/parts/tensorAddress'
import type { NodeChoice } from '~/state/store'

/** What the banner names: where an anomaly began, or, where nothing is known of that, the first hit. */
export type Finding =
  | { kind: 'origin'; key: string; origin: Origin }
  | { kind: 'hit'; key: string; node: NodeHits; hit: HitRecord }

/**
 * What to tell, the most telling first: where anomalies began that have to do with the hits, as the server says. Where
 * there is none, the first hit is the finding.
 */
export function findings(origins: readonly Origin[], nodes: readonly NodeHits[]): Finding[] {
  if (origins.length === 0) {
    const first = firstHit(nodes)
    return first ? [first] : []
  }
  return origins.map((origin) => ({ kind: 'origin', key: `${origin.anomaly}@${origin.address}`, origin }))
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
