import { IconCode } from '~/parts/icons'
import { useTranslation } from 'react-i18next'
import type { Frame } from '~/api/types'
import { useView, type NodeChoice } from '~/state/store'
import { codeOf, linesOf } from '~/parts/lines'
import { nodeOf, type Finding } from './findings'
import classes from './origin.module.css'
import { originTexts } from './texts'

export function lineOf(finding: Finding): Frame | null {
  return (finding.kind === 'origin' ? finding.origin.line : finding.node.line) ?? null
}

/** Format the position of a frame with only the last part of the path: `train.py:19`. */
export function positionOf(frame: Frame): string {
  const file = frame.file.split(/[/\\]/).at(-1) ?? frame.file
  return frame.line == null ? file : `${file}:${linesOf(frame)}`
}

/** The user's line of code behind a finding; a click shows it on the tab *Source*. */
export function SourceLine({ finding }: { finding: Finding }) {
  return <NodeLine line={lineOf(finding)} node={nodeOf(finding)} />
}

/** The line of code of a node; a click shows it on the tab *Source*. */
export function NodeLine({ line, node }: { line: Frame | null; node: NodeChoice }) {
  const { t } = useTranslation(originTexts)
  const { set, selectNode } = useView.getState()
  if (!line) return <div className={classes['quiet']}>{t('noLine')}</div>
  const position = positionOf(line)
  return (
    <button
      type="button"
      className={classes['line']}
      title={`${t('showSource', { position })}\n${line.file}`}
      onClick={() => {
        selectNode(node)
        set({ left: 'sources' })
      }}
      data-testid="origin-line"
      data-line={line.line}
    >
      <span className={classes['where']}>
        <IconCode size={15} aria-hidden />
        <span className={classes['place']}>{position}</span>
      </span>
      <code>{codeOf(line)}</code>
    </button>
  )
}
