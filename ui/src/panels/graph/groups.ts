import type { TreeEntry } from '~/api/types'

/** Similar siblings, drawn as one box until the user opens it. */
export interface Cluster {
  /** Unique in its scope, and stable for the same siblings. */
  key: string
  label: string
  /** The range of the siblings, or their number. */
  detail: string
  entries: TreeEntry[]
}

/** A scope with at most this many entries is drawn without clusters. */
const FEW = 30
/** This many siblings of one type become a cluster, which is familiar to MindSpore's users. */
const ALIKE = 5
/** A cluster has at most this many entries, so that an open one is readable and laid out quickly. */
const LARGEST = 60
const SLICE = 50
/** More boxes than this in one scope are clustered even if they are not similar. */
const MANY = 120

const byNumber = new Intl.Collator('en', { numeric: true })

/** Return the entries of a scope; if there are many, similar ones are replaced by clusters. */
export function clustered(entries: readonly TreeEntry[]): (TreeEntry | Cluster)[] {
  const ordered = inOrder(entries)
  if (ordered.length <= FEW) return ordered
  const kinds = new Map<string, TreeEntry[]>()
  for (const entry of ordered) {
    const alike = kinds.get(likeness(entry))
    if (alike) alike.push(entry)
    else kinds.set(likeness(entry), [entry])
  }
  const items: (TreeEntry | Cluster)[] = []
  for (const entry of ordered) {
    const kind = likeness(entry)
    const alike = kinds.get(kind)
    if (!alike) continue
    if (alike.length < ALIKE) items.push(entry)
    else {
      items.push(...slices(kind, alike))
      kinds.delete(kind)
    }
  }
  if (items.length <= MANY) return items
  const singles = items.filter((item): item is TreeEntry => !isCluster(item))
  return [...items.filter(isCluster), ...slices('', singles)]
}

export function isCluster(item: TreeEntry | Cluster): item is Cluster {
  return 'entries' in item
}

/** Sort scopes by number (`2-Block` before `10-Block`); the other entries follow in topological order. */
function inOrder(entries: readonly TreeEntry[]): TreeEntry[] {
  const scopes = entries.filter((entry) => entry.kind === 'scope')
  scopes.sort((a, b) => byNumber.compare(a.label, b.label))
  return [...scopes, ...entries.filter((entry) => entry.kind !== 'scope')]
}

function likeness(entry: TreeEntry): string {
  if (entry.kind === 'scope') return `scope ${entry.label.replace(/\d+/g, '#')}`
  if (entry.kind === 'operator') return `operator ${entry.type}`
  return entry.kind
}

function slices(kind: string, entries: TreeEntry[]): Cluster[] {
  const isOneType = kind.startsWith('operator ')
  const made: Cluster[] = []
  const size = entries.length > LARGEST ? SLICE : entries.length
  for (let start = 0; start < entries.length; start += size) {
    const slice = entries.slice(start, start + size)
    const first = slice[0]
    const last = slice.at(-1)
    if (!first || !last) break
    const numbers = size < entries.length ? `${start + 1}–${start + slice.length}` : ''
    made.push({
      key: `${kind}#${start / size}`,
      label: isOneType ? first.type : slice.length > 1 ? `${first.label} … ${last.label}` : first.label,
      detail: isOneType && numbers ? numbers : `×${slice.length}`,
      entries: slice,
    })
  }
  return made
}
