import type { HitRecord, NodeHits, Origin } from '~/api/types'
import { parseAddress } from '~/parts/tensorAddress'
import type { NodeChoice } from '~/state/store'

/** What the banner shows: the origin of an anomaly, or the first hit if no origin is known. */
export type Finding =
  | { kind: 'origin'; key: string; origin: Origin }
  | { kind: 'hit'; key: string; node: NodeHits; hit: HitRecord }

/**
 * Return the findings, most important first: the origins related to the hits, in the server's order. If there is none,
 * the first hit is the finding.
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
      tensor.hits.filter((record) => record.hit).map((hit) => ({ node, tensor, hit })),
    ),
  )
  const first = all.find(({ hit }) => hit.severity === 'error') ?? all[0]
  return first ? { kind: 'hit', key: `${first.hit.condition}@${first.tensor.address}`, ...first } : null
}

/** Return the node of a finding. */
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

/** Return the address of the tensor that shows the anomaly. */
export function addressOf(finding: Finding): string {
  if (finding.kind === 'origin') return finding.origin.address
  return finding.node.tensors.find((tensor) => tensor.hits.includes(finding.hit))?.address ?? ''
}

export function stepOf(finding: Finding): number {
  return finding.kind === 'origin' ? finding.origin.step : finding.node.step
}

/** Whether an origin is not exact: its code is a range of lines, or the origin is uncertain. */
export function isVague(finding: Finding): boolean {
  if (finding.kind === 'hit' || finding.origin.arrived) return false
  return !finding.origin.certain || typeof finding.origin.line?.end_line === 'number'
}
