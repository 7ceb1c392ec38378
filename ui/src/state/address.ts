import { TABS } from '~/panels/tabs'
import { emptyView, useView, type ComparePart, type LeftTab, type MainTab, type View } from './store'

/** A change within this time after another replaces its history entry: users do not want to go back row by row. */
const STAYED_MS = 1_000

/** Return the query string for a view and the step shown. */
export function toQuery(view: View, step: number | null = null): string {
  const query = new URLSearchParams()
  if (view.search && !view.run) query.set('search', view.search)
  if (view.run) {
    query.set('run', view.run)
    if (step !== null) query.set('step', String(step))
    if (view.rank) query.set('rank', String(view.rank))
    if (view.graph) query.set('graph', view.graph)
    if (view.node) {
      query.set('node', view.node.name)
      if (view.node.rank !== view.rank) query.set('of', String(view.node.rank))
      if (view.node.graph !== view.graph) query.set('in', view.node.graph)
    }
    for (const tensor of view.tensors) query.append('tensor', tensor)
    if (view.tab !== emptyView.tab) query.set('tab', view.tab)
    if (view.left !== emptyView.left) query.set('left', view.left)
    if (view.other) query.set('with', view.other)
    if (view.part) query.set('part', view.part)
    if (view.watchpoint !== null) query.set('watch', String(view.watchpoint))
    if (view.stackFilter) query.set('line', view.stackFilter)
  }
  // These characters are valid in a query, and users read it.
  const text = query.toString().replace(/%(2F|3A|40|2C)/g, (code) => decodeURIComponent(code))
  return text ? `?${text}` : ''
}

/** Return the view for a query string; unknown values are ignored. */
export function fromQuery(search: string): View {
  const query = new URLSearchParams(search)
  const run = query.get('run') ?? ''
  if (!run) return { ...emptyView, search: query.get('search') ?? '' }
  const rank = whole(query.get('rank')) ?? 0
  const graph = query.get('graph') ?? ''
  const name = query.get('node')
  const tensors = [...new Set(query.getAll('tensor'))].slice(0, 8)
  const requested = query.get('tab') ?? (tensors.length ? `tensor:${tensors.at(-1) ?? ''}` : emptyView.tab)
  const left = query.get('left') ?? ''
  const part = query.get('part') ?? ''
  return {
    ...emptyView,
    run,
    rank,
    graph,
    node: name ? { rank: whole(query.get('of')) ?? rank, graph: query.get('in') ?? graph, name } : null,
    tensors,
    tab: isTab(requested, tensors) ? requested : emptyView.tab,
    left: isLeft(left) ? left : emptyView.left,
    watchpoint: whole(query.get('watch')),
    stackFilter: query.get('line') ?? '',
    other: query.get('with') ?? '',
    part: isPart(part) ? part : null,
    linkedStep: whole(query.get('step')),
  }
}

function whole(text: string | null): number | null {
  return text !== null && /^\d{1,15}$/.test(text) ? Number(text) : null
}

function isTab(text: string, tensors: string[]): text is MainTab {
  const isTensor = text.startsWith('tensor:') && tensors.includes(text.slice('tensor:'.length))
  return isTensor || TABS.some(({ id }) => id === text)
}

function isPart(text: string): text is ComparePart {
  return ['operators', 'values', 'given', 'unmatched', 'losses'].includes(text)
}

function isLeft(text: string): text is LeftTab {
  return ['nodes', 'hits', 'sources'].includes(text)
}

/** Whether users expect the back button to undo the change. */
function isHistoryEntry(view: View, before: View): boolean {
  return (['run', 'search', 'tab', 'node', 'part'] as const).some((name) => view[name] !== before[name])
}

let shownStep: number | null = null

/** Write the step shown to the address bar, without a history entry. */
export function showStep(step: number | null): void {
  shownStep = step
  write('replace')
}

function write(how: 'push' | 'replace'): void {
  const view = useView.getState()
  // The step of a link stays until the run shows it or moves.
  const query = toQuery(view, view.linkedStep ?? shownStep)
  if (query === window.location.search) return
  const url = query || window.location.pathname
  if (how === 'push') window.history.pushState(null, '', url)
  else window.history.replaceState(null, '', url)
}

let isArriving = false

/** Change the view on arrival, without a history entry. */
export function arriving(change: () => void): void {
  isArriving = true
  change()
  isArriving = false
}

/** Keep the address bar and the view in sync, with a history entry for each run, tab and node. */
export function followAddressBar(): () => void {
  let pushedAt = 0
  let isReading = false
  const read = (isFirst: boolean) => {
    isReading = true
    const requested = fromQuery(window.location.search)
    const { run, dialog, edited } = useView.getState()
    if (requested.run !== run) shownStep = null
    // Going back restores the view; it does not move the run.
    useView.setState(isFirst ? requested : { ...requested, dialog, edited, linkedStep: null })
    isReading = false
    write('replace')
    pushedAt = 0
  }
  const goBack = () => read(false)
  read(true)
  window.addEventListener('popstate', goBack)
  const stop = useView.subscribe((view, before) => {
    if (isReading) return
    if (isArriving) {
      write('replace')
      return
    }
    if (view.run !== before.run) shownStep = null
    const now = Date.now()
    const isNew = isHistoryEntry(view, before) && (now - pushedAt > STAYED_MS || view.run !== before.run)
    if (isNew) pushedAt = now
    write(isNew ? 'push' : 'replace')
  })
  return () => {
    window.removeEventListener('popstate', goBack)
    stop()
  }
}
