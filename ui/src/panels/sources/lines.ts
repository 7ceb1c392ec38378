import type { Frame, NodeHits, NodeRecord, SearchPage, SourceFile } from '~/api/types'
import { lastLine } from '~/parts/lines'
import { TreeLines, type TreeLine } from '~/parts/treeLines'

type SourceLine = SourceFile['lines'][number]
/** Maximum number of marked lines per frame. */
const MOST_LINES = 1000

export type FoundNode = SearchPage['nodes'][number]

/** Return the name of a line in filters: `/home/me/net.py:49`. */
export function lineName(file: string, line: number | null | undefined): string {
  return `${file}:${line ?? 0}`
}

export function baseName(file: string): string {
  return file.slice(file.lastIndexOf('/') + 1)
}

/** Return the last folders of a path: `…/models/resnet`. */
export function folderName(file: string): string {
  const parts = file.split('/').slice(0, -1)
  return parts.length > 3 ? `…/${parts.slice(-2).join('/')}` : parts.join('/')
}

/** Count the nodes with hits of each line. */
export function hitsByLine(nodes: readonly NodeHits[]): ReadonlyMap<string, number> {
  const hits = new Map<string, number>()
  for (const { line } of nodes) {
    if (!line) continue
    const name = lineName(line.file, line.line)
    hits.set(name, (hits.get(name) ?? 0) + 1)
  }
  return hits
}

/** Relation of a line to the selected node: the user code that created it, or another frame of its stack. */
export type Origin = 'inner' | 'outer'

export function originLines(node: Pick<NodeRecord, 'stack'> | undefined): ReadonlyMap<string, Origin> {
  const lines = new Map<string, Origin>()
  for (const frame of node?.stack ?? []) {
    if (!frame.file) continue
    const first = frame.line ?? 0
    const last = Math.min(lastLine(frame), first + MOST_LINES)
    for (let line = first; line <= last; line++) {
      const name = lineName(frame.file, line)
      if (lines.get(name) !== 'inner') lines.set(name, frame.is_user_code ? 'inner' : 'outer')
    }
  }
  return lines
}

/** Return the innermost user-code frame of a node; the innermost frame if there is no user code. */
export function ownFrame(node: Pick<NodeRecord, 'stack'> | undefined): Frame | undefined {
  return (
    node?.stack.find((frame) => frame.is_user_code && frame.file) ?? node?.stack.find((frame) => frame.file)
  )
}

export type SourceRow = TreeLine &
  (
    | { kind: 'file'; file: SourceFile; hits: number }
    | { kind: 'line'; file: string; line: SourceLine; name: string; hits: number; origin: Origin | undefined }
    | { kind: 'node'; node: FoundNode; name: string }
    | { kind: 'more'; rest: number; name: string }
    | { kind: 'waiting'; name: string; message: string | undefined }
  )

/** The nodes of a line; neither field is set while they load. */
export interface NodesOfLine {
  page?: SearchPage | undefined
  message?: string | undefined
}

export interface SourceShape {
  files: readonly SourceFile[]
  /** Files whose state was toggled; initially, libraries are closed and other files open. */
  turned: ReadonlySet<string>
  /** During a search, all files are open. */
  isSearch: boolean
  openLines: ReadonlySet<string>
  nodes: ReadonlyMap<string, NodesOfLine>
  hits: ReadonlyMap<string, number>
  origins: ReadonlyMap<string, Origin>
}

export function isFileOpen(file: SourceFile, turned: ReadonlySet<string>, isSearch: boolean): boolean {
  return isSearch || file.is_library === turned.has(file.file)
}

/** Return the rows of files, their lines, and the nodes of open lines. */
export function sourceRows(shape: SourceShape): TreeLines<SourceRow> {
  const { files, turned, isSearch, openLines, nodes, hits, origins } = shape
  const rows = new TreeLines<SourceRow>()
  files.forEach((file, index) => {
    const isOpen = isFileOpen(file, turned, isSearch)
    const names = file.lines.map((line) => lineName(file.file, line.line))
    const total = names.reduce((sum, name) => sum + (hits.get(name) ?? 0), 0)
    const position = { depth: 0, parent: -1, nth: index + 1, siblings: files.length }
    const parent = rows.push({ kind: 'file', key: file.file, ...position, isOpen, file, hits: total })
    if (!isOpen) return
    file.lines.forEach((line, lineIndex) => {
      const name = names[lineIndex] ?? ''
      const isLineOpen = openLines.has(name)
      const linePosition = { depth: 1, parent, nth: lineIndex + 1, siblings: file.lines.length }
      const extra = { line, name, hits: hits.get(name) ?? 0, origin: origins.get(name) }
      rows.push({ kind: 'line', key: name, ...linePosition, isOpen: isLineOpen, file: file.file, ...extra })
      if (isLineOpen) addNodes(rows, name, nodes.get(name))
    })
  })
  return rows
}

function addNodes(rows: TreeLines<SourceRow>, name: string, { page, message }: NodesOfLine = {}): void {
  const parent = rows.length - 1
  if (page === undefined) {
    const position = { key: `${name}?`, depth: 2, parent, nth: 1, siblings: 1 }
    rows.push({ kind: 'waiting', ...position, name, message })
    return
  }
  const rest = page.total - page.nodes.length
  const siblings = page.nodes.length + (rest > 0 ? 1 : 0)
  page.nodes.forEach((node, index) => {
    const key = `${name}\n${node.graph}\n${node.entry.path}`
    rows.push({ kind: 'node', key, depth: 2, parent, nth: index + 1, siblings, node, name })
  })
  if (rest > 0) {
    rows.push({ kind: 'more', key: `${name}+`, depth: 2, parent, nth: siblings, siblings, rest, name })
  }
}
