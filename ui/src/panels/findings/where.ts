import type { SearchPage, SourceFile } from '~/api/types'
import type { NodeChoice } from '~/state/store'

/** Names of a finding's place, and how many more there are than the finding lists. */
export interface Names {
  names: string[]
  total: number
}

/** Return the names in a list such as `a, b, c … (12)`. */
export function namesIn(listed: string): Names {
  const match = /^(.*?)(?: … \((\d+)\))?$/s.exec(listed)
  const names = (match?.[1] ?? '').split(', ').filter(Boolean)
  return { names, total: match?.[2] === undefined ? names.length : Number(match[2]) }
}

/** Return the scope of a module as part of a node's name: `body/1` for `body.1`. */
export function scopeText(module: string): string {
  return module.replaceAll('.', '/')
}

/** Return the node of a parameter or module: that of its name, else the first operator of its scope. */
export function nodeNamed(nodes: SearchPage['nodes'], name: string): NodeChoice | null {
  const scope = scopeText(name)
  const node =
    nodes.find(({ entry }) => entry.path === name) ??
    nodes.find(({ entry }) => entry.path.endsWith(`/${scope}`)) ??
    nodes.find(({ entry }) => `/${entry.path}`.includes(`/${scope}/`))
  if (!node) return null
  const { rank, graph, entry } = node
  return { rank, graph: entry.apart ? graph : '', name: entry.path }
}

/** Return the file and the line for `train.py:13`, if exactly one file can be meant; the user's code is preferred. */
export function sourceOf(
  position: string,
  files: readonly SourceFile[],
): { file: SourceFile; line: number } | null {
  const match = /^(.+):(\d+)$/.exec(position)
  if (!match) return null
  const name = (match[1] ?? '').replaceAll('\\', '/')
  const meant = files.filter(({ file }) => `/${file.replaceAll('\\', '/')}`.endsWith(`/${name}`))
  const users = meant.filter((file) => !file.is_library)
  const [file, other] = users.length > 0 ? users : meant
  return file && !other ? { file, line: Number(match[2]) } : null
}
