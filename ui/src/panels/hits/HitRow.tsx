import { ActionIcon, Tooltip } from '@mantine/core'
import { IconAlertOctagon, IconAlertTriangle, IconHelpCircle, IconTable } from '~/parts/icons'
import { useTranslation } from 'react-i18next'
import { useIsSelected, useSession } from '~/api/queries'
import type { HitRecord, NodeHits } from '~/api/types'
import { conditionTexts } from '~/parts/conditionTexts'
import { useConditionWords } from '~/parts/conditionWords'
import { HitMeasures } from '~/parts/HitMeasures'
import { codeOf, linesOf } from '~/parts/lines'
import { useView } from '~/state/store'
import classes from './hits.module.css'
import { hitsTexts } from './texts'

/** A node with its hits: tensors, conditions, measured values and limits. */
export function HitRow({ hits }: { hits: NodeHits }) {
  const { t } = useTranslation(hitsTexts)
  const { data: session } = useSession()
  const selectNode = useView((view) => view.selectNode)
  const isSelected = useIsSelected()(hits)
  const select = () => selectNode({ rank: hits.rank, graph: hits.graph, name: hits.node })
  const at = hits.node.lastIndexOf('/') + 1
  const file = hits.line?.file.split(/[/\\]/).at(-1) ?? ''
  return (
    <article
      className={classes['row']}
      data-testid="hit-row"
      data-node={hits.node}
      data-rank={hits.rank}
      data-selected={isSelected}
      // Keyboard users have the button.
      onClick={select}
    >
      <button
        type="button"
        className={classes['head']}
        aria-pressed={isSelected}
        title={`${hits.graph}/${hits.node}`}
      >
        <span className={classes['node']}>
          {/* The last part is always visible; the beginning of the path is truncated. */}
          <span className={classes['scope']}>
            <bdi>{hits.node.slice(0, at)}</bdi>
          </span>
          <b>{hits.node.slice(at)}</b>
        </span>
        {(session?.ranks.length ?? 1) > 1 && (
          <span className={classes['quiet']}>{t('rankOf', { rank: hits.rank })}</span>
        )}
        {hits.position != null && (
          <Tooltip label={t('position', { position: hits.position })}>
            <span className={classes['quiet']}>#{hits.position}</span>
          </Tooltip>
        )}
      </button>
      {hits.line && (
        <div
          className={classes['line']}
          title={`${hits.line.file}:${linesOf(hits.line)}\n${codeOf(hits.line)}`}
        >
          <span>
            {file}:{linesOf(hits.line)}
          </span>{' '}
          <code>{codeOf(hits.line)}</code>
        </div>
      )}
      {hits.tensors.map((tensor) => (
        <Tensor key={`${tensor.io}${tensor.slot}`} tensor={tensor} />
      ))}
    </article>
  )
}

function Tensor({ tensor }: { tensor: NodeHits['tensors'][number] }) {
  const { t } = useTranslation(hitsTexts)
  const { t: tc } = useTranslation(conditionTexts)
  const openTensor = useView((view) => view.openTensor)
  const name = tc(tensor.io, { slot: tensor.slot })
  return (
    <div className={classes['tensor']}>
      <div className={classes['slot']}>
        <span className={classes['quiet']}>{name}</span>
        <Tooltip label={t('open', { tensor: name })}>
          <ActionIcon
            size="xs"
            aria-label={t('open', { tensor: name })}
            onClick={(event) => {
              event.stopPropagation()
              openTensor(tensor.address)
            }}
            data-testid="hit-open-tensor"
          >
            <IconTable size={13} />
          </ActionIcon>
        </Tooltip>
      </div>
      <ul>
        {tensor.hits.map((hit) => (
          <Condition key={hit.watchpoint} hit={hit} />
        ))}
      </ul>
    </div>
  )
}

function Condition({ hit }: { hit: HitRecord }) {
  const { t } = useTranslation(conditionTexts)
  const words = useConditionWords()
  const kind = hit.hit ? hit.severity : 'unchecked'
  const Icon = { error: IconAlertOctagon, warning: IconAlertTriangle, unchecked: IconHelpCircle }[kind]
  return (
    <li className={classes['condition']} data-kind={kind} data-testid="hit-condition">
      <Icon size={14} role="img" aria-label={hit.hit ? t(`severities.${hit.severity}`) : '?'} />
      <div>
        <span className={classes['label']}>
          {words.label(hit.condition)} <abbr>{hit.abbreviation}</abbr>
          {hit.name && !hit.name.startsWith('recommend_') && <i> {hit.name}</i>}
        </span>
        <HitMeasures hit={hit} />
      </div>
    </li>
  )
}
