#!/usr/bin/env node
// One CloudFormation stack per target of aws-targets.json, holding what agentcore.json describes: here one
// runtime and its role. The CLI runs this with agentcore/cdk as the working folder and finds the stack by name.

import * as path from 'node:path';

import { AgentCoreApplication, ConfigIO } from '@aws/agentcore-cdk';
import { App, CfnOutput, Stack } from 'aws-cdk-lib';

// Underscores are legal in a project name and not in a stack name.
const hyphens = (name: string): string => name.replace(/_/g, '-');

async function main(): Promise<void> {
  const config = new ConfigIO({ baseDir: path.resolve(process.cwd(), '..') });
  const spec = await config.readProjectSpec();
  const targets = await config.readAWSDeploymentTargets();
  if (targets.length === 0) {
    throw new Error('agentcore/aws-targets.json names no target: add your account and Region');
  }

  const app = new App();
  for (const { name, account, region } of targets) {
    const stack = new Stack(app, `AgentCore-${hyphens(spec.name)}-${hyphens(name)}`, {
      env: { account, region },
      description: `AgentCore stack for ${spec.name} deployed to ${name} (${region})`,
      tags: { 'agentcore:project-name': spec.name, 'agentcore:target-name': name },
    });
    new AgentCoreApplication(stack, 'Application', { spec });
    new CfnOutput(stack, 'StackNameOutput', { value: stack.stackName });
  }
  app.synth();
}

main().catch((error: unknown) => {
  console.error('agentcore/cdk:', error instanceof Error ? error.message : error);
  process.exit(1);
});
