import { ActionIcon, Button, Tooltip } from '@mantine/core'
import { IconListSearch } from '~/parts/icons'
import { useState } from 'react'
import { useTranslation } from 'react-i18next'
import type { Frame, NodeRecord } from '~/api/types'
import { nodeOf } from '~/panels/origin/findings'
import { lineOf } from '~/panels/origin/SourceLine'
import { useFindings } from '~/panels/origin/useFindings'
import { codeOf, linesOf } from '~/parts/lines'
import { useView } from '~/state/store'
import styles from './inspector.module.css'
import { inspectorTexts } from './texts'

/** The source lines of a node, user code first; each links to all nodes of the line. */
export function Source({ node }: { node: NodeRecord }) {
  const { t } = useTranslation(inspectorTexts)
  const [isAll, setAll] = useState(false)
  const finding = useFindingOf(node)
  const userFrames = node.stack.filter((frame) => frame.is_user_code)
  const few = userFrames.length > 0 ? userFrames : node.stack.slice(0, 1)
  const frames = finding ? [finding.line] : isAll ? node.stack : few
  return (
    <section data-testid="node-source">
      <div className={styles.sectionHead}>
        <h3>{t('source')}</h3>
        {node.stack.length > few.length && (
          <Button
            ml="auto"
            size="compact-xs"
            variant="subtle"
            onClick={() => setAll(!isAll)}
            aria-expanded={isAll}
          >
            {isAll ? t('fewerFrames') : t('allFrames', { count: node.stack.length })}
          </Button>
        )}
      </div>
      {node.stack.length === 0 && (
        <p className={styles.note}>
          {finding ? t(finding.isRead ? 'readHere' : 'beganHere') : `${t('noSource')} ${t('noSourceMade')}`}
        </p>
      )}
      <ol className={styles.stack}>
        {frames.map((frame, index) => (
          <FrameRow key={index} frame={frame} />
        ))}
      </ol>
    </section>
  )
}

/** The line that the banner names for a node of which no line was recorded; null if there is none. */
function useFindingOf(node: NodeRecord): { line: Frame; isRead: boolean } | null {
  const { all } = useFindings()
  if (node.stack.length > 0) return null
  for (const finding of all) {
    const { name, rank } = nodeOf(finding)
    const line = lineOf(finding)
    if (line && name === node.name && rank === node.rank)
      return { line, isRead: finding.kind === 'origin' && finding.origin.arrived }
  }
  return null
}

function FrameRow({ frame }: { frame: Frame }) {
  const { t } = useTranslation(inspectorTexts)
  const set = useView((view) => view.set)
  const line = frame.line === null || frame.line === undefined ? '' : `:${frame.line}`
  return (
    <li className={styles.frame} data-user-code={frame.is_user_code || undefined}>
      <div className={styles.line}>
        <span className={styles.file} title={`${frame.file}${line && `:${linesOf(frame)}`}`}>
          {frame.file.split(/[\\/]/).at(-1)}
          {line && `:${linesOf(frame)}`}
        </span>
        <Tooltip label={t('sameLine')}>
          <ActionIcon
            size="sm"
            ml="auto"
            aria-label={t('sameLine')}
            data-testid="same-line"
            onClick={() => set({ stackFilter: `${frame.file}${line}`, left: 'nodes' })}
          >
            <IconListSearch size={14} />
          </ActionIcon>
        </Tooltip>
      </div>
      {frame.code && <code className={styles.code}>{codeOf(frame)}</code>}
    </li>
  )
}
