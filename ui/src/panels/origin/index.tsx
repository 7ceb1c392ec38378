import { Button, Menu, Skeleton } from '@mantine/core'
import {
  IconAlertOctagon,
  IconAlertTriangle,
  IconBinaryTree2,
  IconBulb,
  IconChevronDown,
  IconChevronUp,
  IconClockHour4,
  IconCode,
  IconListDetails,
  IconTable,
  IconZoomIn,
} from '~/parts/icons'
import { useEffect, useState } from 'react'
import { useTranslation } from 'react-i18next'
import { useSession } from '~/api/queries'
import { ActionButton } from '~/parts/ActionButton'
import { conditionTexts } from '~/parts/conditionTexts'
import { CopyButton } from '~/parts/CopyButton'
import { useConditionWords } from '~/parts/conditionWords'
import { HitMeasures } from '~/parts/HitMeasures'
import { arriving } from '~/state/address'
import { nodeOfTensor, useView, type NodeChoice } from '~/state/store'
import { isVague, nodeOf, stepOf, type Finding } from './findings'
import { Details } from './Details'
import { useFolded } from './folding'
import { NodeLink } from './NodeLink'
import { useNextStep } from './nextStep'
import classes from './origin.module.css'
import { SourceLine } from './SourceLine'
import { originTexts } from './texts'
import { useFindings, type Findings } from './useFindings'
import { useFinding } from './useFinding'
import { useOriginActions } from './useOriginActions'
import { sideOf, useValues, wentIn } from './values'
import { ValuesLine } from './ValuesLine'

/** The banner that says what happened, where, in which line, and what to do, as soon as there is a finding. */
export function OriginBanner() {
  const { t } = useTranslation(originTexts)
  const run = useView((view) => view.run)
  const findings = useFindings()
  useFinding()
  const [isFolded] = useFolded()
  if (findings.isPending) {
    return (
      <div className={classes['banner']} role="status" aria-busy aria-label={t('loading')}>
        <Skeleton height={isFolded ? 24 : 100} />
      </div>
    )
  }
  if (findings.error) {
    return (
      <div className={classes['banner']} role="alert">
        {t('failed', { message: findings.error.message })}
      </div>
    )
  }
  return findings.all.length === 0 ? null : <Banner key={run} {...findings} />
}

function Banner({ all: findings, tensors }: Findings) {
  const { t } = useTranslation(originTexts)
  const { data: session } = useSession()
  const [chosen, setChosen] = useState('')
  const [hasDetails, setDetails] = useState(false)
  const [isFolded, fold] = useFolded()
  const finding = findings.find(({ key }) => key === chosen) ?? findings[0] ?? null
  useArrival(finding)
  useOriginActions(finding, { isFolded, fold, hasDetails: hasDetails && !isFolded, setDetails })
  if (!finding) return null
  const isWarning = finding.kind === 'hit' && finding.hit.severity === 'warning'
  return (
    <section
      className={classes['banner']}
      data-severity={isWarning ? 'warning' : 'error'}
      data-folded={isFolded}
      data-testid="origin-banner"
      aria-label={t('region')}
    >
      <div className={classes['icon']} aria-hidden>
        {isWarning ? <IconAlertTriangle size={18} /> : <IconAlertOctagon size={18} />}
      </div>
      <div className={classes['body']}>
        <div className={classes['head']}>
          <Sentence finding={finding} />
          <SourceLine finding={finding} />
          {findings.length > 1 && <Others findings={findings} chosen={finding.key} choose={setChosen} />}
          <ActionButton
            id="origin.fold"
            icon={isFolded ? <IconChevronDown size={16} /> : <IconChevronUp size={16} />}
          />
        </div>
        {!isFolded && (
          <>
            <div className={classes['values']}>
              <Reason finding={finding} tensors={tensors} />
              <ValuesLine finding={finding} />
            </div>
            <NextStep finding={finding} />
            <div className={classes['buttons']}>
              <ActionButton id="origin.node" icon={<IconBinaryTree2 size={14} />} withLabel />
              <ActionButton id="origin.tensor" icon={<IconTable size={14} />} withLabel />
              {session?.capabilities.can_look_closer && isVague(finding) && (
                <ActionButton id="origin.closer" icon={<IconZoomIn size={14} />} withLabel />
              )}
              {stepOf(finding) !== session?.step && (
                <ActionButton id="origin.step" icon={<IconClockHour4 size={14} />} withLabel />
              )}
              {tensors > 0 && (
                <ActionButton id="origin.hits" icon={<IconListDetails size={14} />} withLabel />
              )}
              <ActionButton id="origin.details" icon={<IconCode size={14} />} withLabel />
            </div>
          </>
        )}
      </div>
      {hasDetails && !isFolded && <Details finding={finding} />}
    </section>
  )
}

/** Select the node of a finding, or of the open tensor, if no node is selected yet. */
function useArrival(finding: Finding | null): void {
  const encodedNode = finding && JSON.stringify(nodeOf(finding))
  useEffect(() => {
    const { node, rank, graph, tab, set } = useView.getState()
    if (encodedNode === null || node !== null) return
    const open = tab.startsWith('tensor:') ? nodeOfTensor(tab.slice('tensor:'.length)) : null
    const target = open ?? (JSON.parse(encodedNode) as NodeChoice)
    // Do not leave the rank or graph that the user has chosen.
    if (target.rank !== rank || (graph !== '' && target.graph !== graph)) return
    arriving(() => set({ node: target }))
  }, [encodedNode])
}

/** The anomaly and its node in one line. */
function Sentence({ finding }: { finding: Finding }) {
  const { data: session } = useSession()
  const { t } = useTranslation(originTexts)
  const words = useConditionWords()
  const node = nodeOf(finding)
  let start: string
  if (finding.kind === 'hit') {
    start = t('hit', { condition: words.label(finding.hit.condition), step: stepOf(finding) })
  } else {
    const { anomaly, step, certain, arrived, unseen } = finding.origin
    const values = { anomaly: t(`anomalies.${anomaly}`, { defaultValue: anomaly }), step }
    start = t(arrived ? 'arrived' : certain && !unseen ? 'began' : 'firstSeen', values)
  }
  return (
    <div className={classes['sentence']} aria-live="polite" data-testid="origin-sentence">
      <strong>{start}</strong> <NodeLink node={node} isStrong />
      {(session?.ranks.length ?? 1) > 1 && <span> ({t('onRank', { rank: node.rank })})</span>}
    </div>
  )
}

/** Why it is the origin; nothing if the values shown beside it contradict. */
function Reason({ finding, tensors }: { finding: Finding; tensors: number }) {
  const { t } = useTranslation(originTexts)
  const { data = [] } = useValues(finding)
  if (finding.kind === 'hit') {
    return (
      <span data-testid="origin-reason">
        <HitMeasures hit={finding.hit} />
        {tensors > 1 && <span className={classes['quiet']}> ({t('alsoHit', { count: tensors })})</span>}
      </span>
    )
  }
  const { anomaly, step, certain, arrived, line, unseen, is_older, is_left_out, changed } = finding.origin
  const reasons: string[] = []
  if (changed) reasons.push(t(line ? 'changedAndRead' : 'changed'))
  else if (arrived) reasons.push(t(line ? 'notComputedButRead' : 'notComputed'))
  else if (!certain) reasons.push(t('leftOpen'))
  else if (!wentIn(anomaly, sideOf(data, 'input'))) reasons.push(t(`absent.${anomaly}`))
  if (is_left_out) reasons.push(t('leftOut'))
  if (unseen) {
    const [first, last] = unseen
    const before = first === 1 ? (is_older ? 'wasBefore' : 'mayBeBefore') : 'unseen'
    reasons.push(t(before, { step, first, last }))
  }
  if (reasons.length === 0) return null
  const reason = reasons.join('; ')
  return (
    <span className={classes['quiet']} data-testid="origin-reason" title={reason}>
      {reason}
    </span>
  )
}

function NextStep({ finding }: { finding: Finding }) {
  const { t } = useTranslation(originTexts)
  const { data: session } = useSession()
  const next = useNextStep(finding)
  const command = isVague(finding) ? session?.closer_command : ''
  if (command) {
    return (
      <div className={classes['next']} data-testid="origin-next">
        <IconBulb size={15} aria-label={t('next')} role="img" />
        <span>{t(session?.state === 'paused' ? 'againLost' : 'again')}</span>
        <code className={classes['command']} title={command} data-testid="origin-command">
          {command}
        </code>
        <CopyButton text={command} label={t('copyCommand')} />
      </div>
    )
  }
  if (!next) return null
  return (
    <div className={classes['next']} data-testid="origin-next">
      <IconBulb size={15} aria-label={t('next')} role="img" />
      <span title={next}>{next}</span>
    </div>
  )
}

/** The menu to choose one of several findings. */
function Others(props: { findings: Finding[]; chosen: string; choose: (key: string) => void }) {
  const { t } = useTranslation(originTexts)
  const { t: tc } = useTranslation(conditionTexts)
  const { findings, chosen } = props
  const labelOf = (finding: Finding) =>
    finding.kind === 'hit' ? tc(`labels.${finding.hit.condition}`) : t(`chips.${finding.origin.anomaly}`)
  return (
    <Menu position="bottom-end" shadow="md" width={360}>
      <Menu.Target>
        <Button
          variant="default"
          size="compact-xs"
          className={classes['others'] ?? ''}
          rightSection={<IconChevronDown size={12} />}
          data-testid="origin-findings"
        >
          {t('findings', {
            position: findings.findIndex(({ key }) => key === chosen) + 1,
            total: findings.length,
          })}
        </Button>
      </Menu.Target>
      <Menu.Dropdown aria-label={t('chooseFinding')} mah="50vh" style={{ overflowY: 'auto' }}>
        {findings.map((finding) => (
          <Menu.Item
            key={finding.key}
            aria-current={finding.key === chosen}
            onClick={() => props.choose(finding.key)}
            data-testid="origin-finding"
            rightSection={<span className={classes['quiet']}>{t('step', { step: stepOf(finding) })}</span>}
          >
            <b>{labelOf(finding)}</b> <span className="mono">{nodeOf(finding).name.split('/').at(-1)}</span>
          </Menu.Item>
        ))}
      </Menu.Dropdown>
    </Menu>
  )
}
